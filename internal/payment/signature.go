package payment

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// ErrSignature says that a webhook is not signed with any of the secrets, or more than 5 minutes ago.
var ErrSignature = errors.New("the webhook's signature is not valid")

// ErrTimestamp is ErrSignature of a well signed webhook more than 5 minutes away: a wrong clock, or a replay.
var ErrTimestamp = errors.New("it is signed, but its timestamp is more than 5 minutes off")

const (
	secretPrefix = "whsec_" // marks a secret in base64 (Standard Webhooks, "Signature scheme")
	// standardPrefix and svixPrefix begin the headers: those of the standard, and those that it was made of.
	standardPrefix, svixPrefix = "webhook-", "svix-"
)

// Signatures signs webhooks and verifies them, as Standard Webhooks demands
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md). The first secret signs
// and all verify, so that one can be replaced while both are in use. Without a secret no webhook is valid.
type Signatures struct{ hooks []*standardwebhooks.Webhook }

// shortest is the least of a secret in bytes (Standard Webhooks), and leastVariety of how many different ones: 24
// random decimal digits have fewer once in 60,000 times. Whoever guesses a secret pays without money.
const (
	shortest     = 24
	leastVariety = 6
)

// NewSignatures takes secrets behind whsec_ in base64, or as they are. Libraries disagree: both readings verify.
func NewSignatures(secrets []string) (*Signatures, error) {
	s := &Signatures{}
	for i, secret := range secrets {
		key, err := SecretKey(secret)
		if err != nil {
			return nil, fmt.Errorf("secret %d of webhooks: %w", i+1, err)
		}
		other := []byte(secret)
		if !strings.HasPrefix(secret, secretPrefix) {
			other, _ = decode(secret) // empty: it can be read in one way only
		}
		for _, reading := range [][]byte{key, other} {
			if len(reading) == 0 {
				continue
			}
			hook, err := standardwebhooks.NewWebhookRaw(reading)
			if err != nil {
				return nil, fmt.Errorf("secret %d of webhooks is no good", i+1)
			}
			s.hooks = append(s.hooks, hook)
		}
	}
	return s, nil
}

// SecretKey is the key that a secret means. An error says, without repeating it, that it cannot be read or is quickly
// guessed.
func SecretKey(secret string) ([]byte, error) {
	encoded, isBase64 := strings.CutPrefix(secret, secretPrefix)
	key := []byte(secret)
	if isBase64 {
		var err error
		if key, err = decode(encoded); err != nil {
			return nil, errors.New("it is not base64 behind " + secretPrefix)
		}
	}
	different := slices.Compact(slices.Sorted(slices.Values(key)))
	if len(key) < shortest || len(different) < leastVariety {
		return nil, fmt.Errorf("it is of %d bytes, %d of them different, and whoever guesses it pays without money: "+
			"take one of at least %d from openssl rand -base64 32", len(key), len(different), shortest)
	}
	return key, nil
}

func decode(text string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
}

// Keys are the bearer keys of a provider's API that shares secrets of webhooks; they cannot sign webhooks. The service
// calls with the first, and a provider takes each, so that the two may list their secrets in any order.
func Keys(secrets []string) ([]string, error) {
	keys := make([]string, len(secrets))
	for i, secret := range secrets {
		key, err := SecretKey(secret)
		if err == nil {
			key, err = hkdf.Key(sha256.New, key, nil, "seckill payment provider: bearer key", sha256.Size)
		}
		if err != nil {
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		}
		keys[i] = base64.RawURLEncoding.EncodeToString(key)
	}
	return keys, nil
}

// authorized reports whether a provider's caller has one of its keys.
func authorized(r *http.Request, keys []string) bool {
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	found := 0
	for _, key := range keys {
		found |= subtle.ConstantTimeCompare([]byte(given), []byte(key))
	}
	return found == 1
}

// Verify checks a webhook's headers against its body, and returns its id, the same in repetitions; or ErrSignature.
func (s *Signatures) Verify(header http.Header, body []byte) (id string, err error) {
	header = standard(header)
	err = errors.New("there are no secrets")
	for _, hook := range s.hooks {
		if err = hook.Verify(body, header); err == nil {
			return header.Get(standardwebhooks.HeaderWebhookID), nil
		}
		if hook.VerifyIgnoringTimestamp(body, header) == nil {
			return "", fmt.Errorf("%w: %w", ErrSignature, ErrTimestamp)
		}
	}
	return "", fmt.Errorf("%w: %w", ErrSignature, err)
}

// standard gives headers the names of the standard, unless they have these already.
func standard(header http.Header) http.Header {
	if header.Get(standardwebhooks.HeaderWebhookID) != "" {
		return header
	}
	named := http.Header{}
	for _, name := range []string{"id", "timestamp", "signature"} {
		named.Set(standardPrefix+name, header.Get(svixPrefix+name))
	}
	return named
}

// Sign makes the headers of a webhook that is sent now, or again.
func (s *Signatures) Sign(id string, at time.Time, body []byte) (http.Header, error) {
	if len(s.hooks) == 0 {
		return nil, errors.New("sign a webhook: there is no secret")
	}
	signature, err := s.hooks[0].Sign(id, at, body)
	if err != nil {
		return nil, fmt.Errorf("sign a webhook: %w", err)
	}
	header := http.Header{}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	return header, nil
}

// Buyers gives each user one name for a provider's search for fraud: HMAC-SHA256 of the id in 43 characters of URL-safe
// base64, with a key from a secret that the provider does not have. A plain hash would not hide short ids.
func Buyers(secret string) (name func(userID string) string, _ error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "seckill payment provider: names of buyers", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the key of buyers' names: %w", err)
	}
	return func(userID string) string {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(userID))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}, nil
}
