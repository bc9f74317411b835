// Package payment starts, looks up and refunds payments at a provider over HTTP, and checks the signatures of its
// webhooks. It keeps nothing; package simulator below it is a provider to try out.
//
// All bodies are JSON, amounts are integers in ISO 4217 minor units, and Authorization carries a bearer key:
//
//	POST /payments               Checkout                           200 Payment, pending at first
//	GET  /payments/{id}                                             200 Payment; 404
//	POST /payments/{id}/refunds  {amount, currency}                 200 Refund
//
// Both POST carry an Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): the same key and body again get the
// same answer, and nothing happens twice. The same key with other money or another order is 422; while the first call
// is under way it is 409, which says nothing. 404 and 422 are refusals: nothing has happened. Every other answer, and
// none, says nothing. deployments/payments.md says the same at length, for those who write an adapter.
package payment

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"seckill/internal/budget"
	"seckill/model"
)

// ErrRefused says that the provider refuses a call for good: nothing has happened, and nothing would.
var ErrRefused = errors.New("the payment provider refuses")

// ErrNotFound says that the provider knows no such payment. It is an ErrRefused too.
var ErrNotFound = errors.New("the payment provider knows no such payment")

// Status is where a payment stands.
type Status string

// The statuses. Succeeded and Failed are final.
const (
	Pending   Status = "pending"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
)

// Money is an amount in minor units of a currency (ISO 4217).
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Request asks for a payment. The caller chooses its id, which is its idempotency key.
type Request struct {
	ID      string `json:"id"`
	OrderID string `json:"order_id"`
	Money
}

// Checkout asks for a payment. What the provider's page shows, and its way back, is the first call's, as titles change.
type Checkout struct {
	Request

	Title     string    `json:"title,omitempty"`      // of the voucher
	ReturnURL string    `json:"return_url,omitempty"` // the shop's page, for a buyer who has paid or has not
	ExpiresAt time.Time `json:"expires_at,omitzero"`  // of the order: money that comes later goes back
	Buyer     string    `json:"buyer,omitempty"`      // the same for the same buyer; see Buyers
}

// Payment is a payment as its provider sees it.
type Payment struct {
	Request

	Status Status `json:"status"`
	URL    string `json:"url,omitempty"` // where the buyer pays
	// Refunded is a part of the amount, with what others gave back and what a dispute has cost.
	Refunded int64 `json:"refunded"`
	Disputed bool  `json:"disputed"` // by the buyer, and not decided yet
}

// Refund is money that went back.
type Refund struct {
	PaymentID string `json:"payment_id"`
	Money
}

// The types of webhooks.
const (
	EventSucceeded = "payment.succeeded"
	EventFailed    = "payment.failed"
	EventRefunded  = "payment.refunded" // Refunded of the amount went back by now
	EventDisputed  = "payment.disputed" // or, with Disputed false, not any more
)

// Event is the body of a webhook.
type Event struct {
	Type string    `json:"type"`
	Data EventData `json:"data"`
}

// EventData says which payment an event is about.
type EventData struct {
	PaymentID string `json:"payment_id"`
	OrderID   string `json:"order_id"`
	Money

	Refunded int64 `json:"refunded,omitempty"` // of the amount, altogether
	Disputed *bool `json:"disputed,omitempty"` // nil: it is not said
}

const (
	// callTimeout bounds one call. A buyer waits for the start of a payment, and an answer takes at most 5 s.
	callTimeout    = 3 * budget.Look
	maxAnswer      = 64 << 10 // an answer in bytes; an honest one has some hundred
	maxURL         = 2048     // an address in bytes, as browsers and the database do
	maxConnections = 64       // calls under way. Further ones wait for their turn, within callTimeout
	// maxStarts of them are for starts, which buyers make at will. The others stay free for refunds and questions.
	maxStarts       = maxConnections - 16
	idleConnections = 8 // stay open between calls
)

// Client calls a provider. It is safe for concurrent use. An error is ErrRefused, or wraps model.ErrUnknownOutcome: it
// may have happened, and only the same call again, or LookUp, tells.
type Client struct {
	base string
	key  string
	http *http.Client

	starts chan struct{} // a place for each start under way
}

// NewClient calls the provider at a base URL with a bearer key.
func NewClient(base, key string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, errors.New("the payment provider's URL is not of the form https://host/path")
	}
	return &Client{
		base: strings.TrimSuffix(u.String(), "/"), key: key, starts: make(chan struct{}, maxStarts),
		http: &http.Client{
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				ForceAttemptHTTP2:      true,
				MaxConnsPerHost:        maxConnections,
				MaxIdleConnsPerHost:    idleConnections,
				IdleConnTimeout:        budget.Survey,
				MaxResponseHeaderBytes: maxAnswer,
			},
			// Money goes where it was sent: a redirect counts as no answer.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Start starts a payment, or finds the one that an earlier call with the same request has started.
func (c *Client) Start(ctx context.Context, r Checkout) (Payment, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case c.starts <- struct{}{}:
		defer func() { <-c.starts }()
	case <-ctx.Done():
		return Payment{}, fmt.Errorf("start payment %s: %w", r.ID, unknown(ctx.Err()))
	}
	var started Payment
	sound := func() bool { return started.Request == r.Request && started.sound() }
	err := c.call(ctx, "start payment "+r.ID, http.MethodPost, "/payments", r.ID, r, &started, sound)
	return started, err
}

// LookUp asks how a payment stands; ErrNotFound when the provider has none.
func (c *Client) LookUp(ctx context.Context, id string) (Payment, error) {
	var found Payment
	sound := func() bool { return found.ID == id && found.sound() }
	err := c.call(ctx, "look up payment "+id, http.MethodGet, "/payments/"+url.PathEscape(id), "", nil, &found, sound)
	return found, err
}

// Refund gives money back. Nothing goes back twice for one key.
func (c *Client) Refund(ctx context.Context, key string, r Refund) error {
	var done Refund
	path := "/payments/" + url.PathEscape(r.PaymentID) + "/refunds"
	return c.call(ctx, "refund payment "+r.PaymentID, http.MethodPost, path, key, r.Money, &done,
		func() bool { return done == r })
}

func (p Payment) sound() bool {
	known := p.Status == Pending || p.Status == Succeeded || p.Status == Failed
	return known && p.Amount >= 0 && p.Refunded >= 0 && p.Refunded <= p.Amount && (p.URL == "" || isPage(p.URL))
}

// isPage reports whether a browser may be sent to a URL: a buyer's page must run no script of its own.
func isPage(text string) bool {
	u, err := url.Parse(text)
	ascii := strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
	return err == nil && ascii && len(text) <= maxURL && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

func unknown(cause error) error { return fmt.Errorf("%w: %w", model.ErrUnknownOutcome, cause) }

// call makes one call. Only 200 with a sound document, and refusals, are answers; otherwise it may have been done.
func (c *Client) call(
	ctx context.Context, action, method, path, key string, body, answer any, sound func() bool,
) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", action, err)
		}
	}()
	var sent io.Reader = http.NoBody
	if body != nil {
		document, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("write the call: %w", err)
		}
		sent = bytes.NewReader(document)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, sent)
	if err != nil {
		return fmt.Errorf("make the call: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return unknown(err)
	}
	defer response.Body.Close()
	document, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return unknown(err)
	case response.StatusCode == http.StatusNotFound && refusal(document):
		return fmt.Errorf("%w: %w", ErrRefused, ErrNotFound)
	case response.StatusCode == http.StatusUnprocessableEntity && refusal(document):
		return fmt.Errorf("%w: %s", ErrRefused, response.Status)
	case response.StatusCode != http.StatusOK:
		return unknown(fmt.Errorf("the answer is %s", response.Status))
	case len(document) > maxAnswer:
		return unknown(fmt.Errorf("the answer is longer than %d bytes", maxAnswer))
	}
	if err := json.Unmarshal(document, answer); err != nil {
		return unknown(fmt.Errorf("read the answer: %w", err))
	}
	if !sound() {
		return unknown(errors.New("the answer makes no sense"))
	}
	return nil
}

// refusal reports whether a document is the provider's: a proxy's 404 must not end a refund.
func refusal(document []byte) bool {
	var said problem
	return json.Unmarshal(document, &said) == nil && said.Error != ""
}

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
