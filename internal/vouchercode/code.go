// Package vouchercode makes the codes that buyers show to use vouchers, reads what people type of them, and keeps them
// so that a leaked copy of the database reveals none that can be used.
//
// A code is 19 random characters of Crockford's base32 (https://www.crockford.com/base32.html) and a check symbol, by
// fours: 7K3M-9QWD-0XVB-R5TE-H2AC. No library has this form: Go's encode 64-bit integers, most without a check symbol.
package vouchercode

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"

	"seckill/internal/redact"
)

const (
	alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ" // without I, L and O, which look like 1 and 0, and U
	// modulus is the least prime above 32: it shows every wrong character and exchange of two, but first with last.
	modulus = 37

	dataLength  = 19 // 95 bits, of which the choice of the check symbol takes a fifth of one; 80 would be enough
	length      = dataLength + 1
	groupLength = 4

	longestInput = 128 // of a person's text, in bytes: a code takes 24, with a blank or a dash between any two
)

// ErrMistyped says that a text is no code: check symbol, length or characters. An unknown code is not mistyped.
var ErrMistyped = errors.New("the code is mistyped")

// Code is a code, or the zero value. Whatever prints it prints ***; Reveal alone tells it.
type Code struct {
	hidden

	text *string // a pointer, because fmt prints the fields of others by reflection, past any method
}

// New makes a code that nobody can guess, and that ends in none of *~$=U, check symbols bad to read aloud and to type.
func New() Code {
	text := make([]byte, dataLength, length)
	for {
		rand.Read(text) // never fails: without randomness the program ends (crypto/rand)
		for i, random := range text {
			text[i] = alphabet[random%byte(len(alphabet))] // 32 divides 256: all are equally likely
		}
		if check := checksum(text); check < len(alphabet) {
			return of(string(append(text, alphabet[check])))
		}
	}
}

// Parse reads a typed code: any case, O for 0, I or L for 1, blanks and dashes anywhere. ErrMistyped quotes none of it.
func Parse(text string) (Code, error) {
	if len(text) > longestInput {
		return Code{}, ErrMistyped
	}
	plain := strings.Map(character, text)
	if len(plain) != length || strings.Trim(plain, alphabet) != "" ||
		checksum([]byte(plain[:dataLength])) != strings.IndexByte(alphabet, plain[dataLength]) {
		return Code{}, ErrMistyped
	}
	return of(plain), nil
}

// character is what a typed character stands for, or -1 for nothing.
func character(typed rune) rune {
	switch {
	case unicode.IsSpace(typed), unicode.Is(unicode.Dash, typed):
		return -1
	case typed > unicode.MaxASCII:
		return '?' // no code has it: ToUpper would make an S of an ſ
	}
	switch upper := unicode.ToUpper(typed); upper {
	case 'O':
		return '0'
	case 'I', 'L':
		return '1'
	default:
		return upper
	}
}

// checksum is the value of the check symbol: the number that characters of the alphabet write, modulo 37.
func checksum(text []byte) int {
	sum := 0
	for _, c := range text {
		sum = (sum*len(alphabet) + strings.IndexByte(alphabet, c)) % modulus
	}
	return sum
}

func of(text string) Code { return Code{text: &text} }

// plain is the code without its dashes, the one form that is hashed and sealed.
func (c Code) plain() string {
	if c.text == nil {
		return ""
	}
	return *c.text
}

// IsZero reports whether there is no code.
func (c Code) IsZero() bool { return c.text == nil }

// Reveal tells the code, in groups. It is for the answer to its owner or to an administrator, and for nothing else.
func (c Code) Reveal() string {
	plain := c.plain()
	var groups []string
	for i := 0; i < len(plain); i += groupLength {
		groups = append(groups, plain[i:i+groupLength])
	}
	return strings.Join(groups, "-")
}

// hidden is embedded in what no verb, no log and no document may tell.
type hidden struct{}

func (hidden) Format(out fmt.State, _ rune) { _, _ = io.WriteString(out, redact.Mark) }

func (hidden) LogValue() slog.Value { return slog.StringValue(redact.Mark) }

// MarshalText implements encoding.TextMarshaler, which JSON uses too.
func (hidden) MarshalText() ([]byte, error) { return []byte(redact.Mark), nil }

const keyLength = 32 // bytes of both keys, of which HMAC-SHA256 and AES-256 make full use

// Keys find codes again and seal them, by two keys from one secret (HKDF, RFC 5869), neither of which reveals the
// other. Without it no code is found, opened, or guessed and compared. Keys are safe for concurrent use.
type Keys struct {
	hidden

	lookUp []byte
	seal   cipher.AEAD
}

// NewKeys derives the keys from a secret of at least 32 bytes.
func NewKeys(secret string) (*Keys, error) {
	if len(secret) < keyLength {
		return nil, fmt.Errorf("the secret of voucher codes has %d bytes; %d are the least", len(secret), keyLength)
	}
	lookUp, err := hkdf.Key(sha256.New, []byte(secret), nil, "seckill voucher code: look-up", keyLength)
	sealing, sealingErr := hkdf.Key(sha256.New, []byte(secret), nil, "seckill voucher code: seal", keyLength)
	if err = errors.Join(err, sealingErr); err != nil {
		return nil, fmt.Errorf("derive the keys of codes: %w", err)
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return nil, fmt.Errorf("seal codes: %w", err)
	}
	// A random 96-bit nonce is safe for 2^32 messages of one key (NIST SP 800-38D, 8.3): more orders than there are.
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

// Seal encrypts an order's code (AES-256-GCM, 48 bytes). It opens for that order alone, not in another row.
func (k *Keys) Seal(code Code, orderID string) []byte {
	return k.seal.Seal(nil, nil, //nolint:gosec // it makes a random nonce itself
		[]byte(code.plain()), []byte(orderID))
}

// Open decrypts an order's code. It fails for another secret or order, or when a bit was changed.
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
