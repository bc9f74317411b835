package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

// hs256 is the library's HS256 for one secret. It verifies with hash states that have
// taken in the secret already, because that, and making them, is half of the work.
type hs256 struct {
	*jwt.SigningMethodHMAC

	states sync.Pool // of *hmacState
}

type hmacState struct {
	hash   hash.Hash
	text   []byte // what is verified
	digest []byte
}

func newHS256(secret string) *hs256 {
	return &hs256{
		SigningMethodHMAC: jwt.SigningMethodHS256,
		states:            sync.Pool{New: func() any { return &hmacState{hash: hmac.New(sha256.New, []byte(secret))} }},
	}
}

// Verify implements jwt.SigningMethod. The key is its own.
func (m *hs256) Verify(signed string, signature []byte, _ any) error {
	s, _ := m.states.Get().(*hmacState)
	defer m.states.Put(s)
	s.hash.Reset()
	s.text = append(s.text[:0], signed...)
	s.hash.Write(s.text) // never fails, see hash.Hash
	s.digest = s.hash.Sum(s.digest[:0])
	if !hmac.Equal(signature, s.digest) {
		return jwt.ErrSignatureInvalid
	}
	return nil
}
