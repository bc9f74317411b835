package hotcopy

import "crypto/tls"

// secured is how servers are spoken to whose URL asks for TLS: as the first configuration says
// that was given and is not nil. Each server is held to the name of its own host: the URL's
// configuration has that of the first one.
func secured(ofURL *tls.Config, given []*tls.Config) *tls.Config {
	if ofURL == nil {
		return nil
	}
	for _, config := range given {
		if config != nil {
			return config.Clone()
		}
	}
	ofURL.ServerName = ""
	return ofURL
}
