package queue

import (
	"crypto/tls"
	"errors"

	"github.com/nats-io/nats.go"
)

// Access is how the servers are spoken to, and as whom. The zero Access leaves both to the URL.
type Access struct {
	// TLS is required of every server when it is set.
	TLS *tls.Config
	// Credentials is the name of a file with a user's credentials (.creds), and NKey of one
	// with the seed of a user's nkey. A renewed file of credentials needs no restart.
	Credentials, NKey string
}

// options are those of the library.
func (a Access) options() ([]nats.Option, error) {
	var options []nats.Option
	if a.TLS != nil {
		options = append(options, nats.Secure(a.TLS))
	}
	if a.Credentials != "" {
		options = append(options, nats.UserCredentials(a.Credentials))
	}
	if a.NKey != "" {
		seed, err := nats.NkeyOptionFromSeed(a.NKey)
		if err != nil {
			// The library's error may quote the file.
			return nil, errors.New("the file with the nkey of the order queue holds no seed of a user (SU…)")
		}
		options = append(options, seed)
	}
	return options, nil
}
