package vouchercode

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"

	"seckill/internal/redact"
)

const (
	// shortestSecret, in bytes, is what HMAC-SHA256 and AES-256 make full use of.
	shortestSecret = 32
	keyLength      = 32
)

// Keys find codes again and seal them. Both keys come from one secret (HKDF, RFC 5869) and neither tells
// anything about the other. Without the secret a stored code can be neither found, nor opened, nor guessed and
// compared. Keys are safe for concurrent use.
type Keys struct {
	lookUp []byte
	seal   cipher.AEAD
}

// NewKeys derives the keys from a secret of at least 32 bytes.
func NewKeys(secret string) (*Keys, error) {
	if len(secret) < shortestSecret {
		return nil, fmt.Errorf("the secret of voucher codes has %d bytes; %d are the least", len(secret), shortestSecret)
	}
	lookUp, err := hkdf.Key(sha256.New, []byte(secret), nil, "seckill voucher code: look-up", keyLength)
	if err != nil {
		return nil, fmt.Errorf("derive the key that finds codes: %w", err)
	}
	sealing, err := hkdf.Key(sha256.New, []byte(secret), nil, "seckill voucher code: seal", keyLength)
	if err != nil {
		return nil, fmt.Errorf("derive the key that seals codes: %w", err)
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return nil, fmt.Errorf("seal codes: %w", err)
	}
	// A random nonce of 96 bits is safe for 2^32 messages of one key (NIST SP 800-38D, 8.3), which is more
	// orders than a service has.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("seal codes: %w", err)
	}
	return &Keys{lookUp: lookUp, seal: aead}, nil
}

// Hash is what a code is found by: HMAC-SHA256, 32 bytes, always the same for one code.
func (k *Keys) Hash(code Code) []byte {
	mac := hmac.New(sha256.New, k.lookUp)
	mac.Write([]byte(code.plain()))
	return mac.Sum(nil)
}

// Seal encrypts the code of an order (AES-256-GCM, 48 bytes). It opens for that order alone, so that a code
// copied to another row is noticed.
func (k *Keys) Seal(code Code, orderID string) []byte {
	return k.seal.Seal(nil, nil, //nolint:gosec // it makes a random nonce itself
		[]byte(code.plain()), []byte(orderID))
}

// Open decrypts the code of an order. It fails when another secret has sealed it, for another order, or when a
// bit of it was changed.
func (k *Keys) Open(sealed []byte, orderID string) (Code, error) {
	plain, err := k.seal.Open(nil, nil, sealed, []byte(orderID))
	if err != nil {
		return Code{}, fmt.Errorf("open the code of order %s (was it sealed with another secret?): %w", orderID, err)
	}
	code, err := Parse(string(plain))
	if err != nil {
		return Code{}, fmt.Errorf("open the code of order %s: %w", orderID, err)
	}
	return code, nil
}

// Format implements fmt.Formatter, so that no verb tells the keys.
func (*Keys) Format(out fmt.State, _ rune) { _, _ = io.WriteString(out, redact.Mark) }
