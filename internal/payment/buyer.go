package payment

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// Buyers names buyers to a provider, which looks for fraud by them: one buyer has one name, from which a reader without
// the secret cannot learn whose it is. Ids of users may be short numbers, which a plain hash would not hide.
type Buyers struct{ key []byte }

// NewBuyers derives the names from a secret that the provider does not have.
func NewBuyers(secret string) (*Buyers, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "seckill payment provider: names of buyers", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the key of buyers' names: %w", err)
	}
	return &Buyers{key: key}, nil
}

// Name is HMAC-SHA256 of the id of a user, 43 characters of URL-safe base64.
func (b *Buyers) Name(userID string) string {
	mac := hmac.New(sha256.New, b.key)
	mac.Write([]byte(userID))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
