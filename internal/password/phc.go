package password

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// Bounds of what is accepted from storage, so that a row which was written
// by hand cannot occupy the machine: four times the OWASP minimum and more.
const (
	maxMemory     = 128 * 1024 // KiB
	maxIterations = 16
	maxLanes      = 16
	maxBytes      = 64 // of salt and key
)

// encoded is a hash with everything that is needed to compute it again.
type encoded struct {
	memory     uint32 // KiB
	iterations uint32
	lanes      uint8
	salt       []byte
	key        []byte
}

// String is the PHC string format,
// https://github.com/P-H-C/phc-string-format/blob/master/phc-sf-spec.md.
func (e encoded) String() string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, e.memory, e.iterations, e.lanes, b64(e.salt), b64(e.key))
}

// parse reads what String wrote. Its errors do not repeat the text.
func parse(phc string) (encoded, error) {
	parts := strings.Split(phc, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return encoded{}, errors.New("it is no argon2id hash")
	}
	if parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return encoded{}, errors.New("its version of argon2 is unknown")
	}
	var e encoded
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &e.memory, &e.iterations, &e.lanes); err != nil {
		return encoded{}, fmt.Errorf("its parameters cannot be read: %w", err)
	}
	if e.lanes < 1 || e.lanes > maxLanes || e.iterations < 1 || e.iterations > maxIterations ||
		e.memory < 8*uint32(e.lanes) || e.memory > maxMemory {
		return encoded{}, errors.New("its parameters are out of bounds")
	}
	var err error
	if e.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return encoded{}, fmt.Errorf("its salt cannot be read: %w", err)
	}
	if e.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return encoded{}, fmt.Errorf("its key cannot be read: %w", err)
	}
	if len(e.salt) < 8 || len(e.salt) > maxBytes || len(e.key) < 16 || len(e.key) > maxBytes {
		return encoded{}, errors.New("its salt or key has an odd length")
	}
	if e.String() != phc {
		return encoded{}, errors.New("it is not written the way it should be")
	}
	return e, nil
}
