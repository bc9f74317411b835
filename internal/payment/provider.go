package payment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"seckill/model"
)

// maxKey bounds an idempotency key in bytes, as providers do.
const maxKey = 255

// ErrInvalid refuses a call that no provider could do. It is an ErrRefused.
var ErrInvalid = fmt.Errorf("%w: the call is not valid", ErrRefused)

// Provider is the provider's side. ErrRefused (as ErrNotFound): nothing happened. Other errors: the call is repeated.
type Provider interface {
	Start(ctx context.Context, asked Checkout) (Payment, error)
	LookUp(ctx context.Context, id string) (Payment, error)
	Refund(ctx context.Context, key string, asked Refund) error
}

// Serve adds the calls to a mux, for holders of a key, within patience. A page that is a path is on the called host.
func Serve(mux *http.ServeMux, p Provider, keys []string, patience time.Duration, log *slog.Logger) {
	handle := func(pattern string, do func(ctx context.Context, r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !authorized(r, keys) {
				answer(w, http.StatusUnauthorized, problem{"the key is wrong"})
				return
			}
			ctx, enough := context.WithTimeout(r.Context(), patience)
			defer enough()
			done, err := do(ctx, r)
			switch {
			case err == nil:
				answer(w, http.StatusOK, done)
				return
			case errors.Is(err, ErrNotFound):
				answer(w, http.StatusNotFound, problem{err.Error()})
				return
			case errors.Is(err, ErrRefused):
				answer(w, http.StatusUnprocessableEntity, problem{err.Error()})
			default:
				answer(w, http.StatusBadGateway, problem{"the provider does not answer"})
			}
			log.WarnContext(ctx, "a call of the service failed", slog.String("path", r.URL.Path),
				slog.Any("error", err))
		})
	}
	handle("POST /payments", func(ctx context.Context, r *http.Request) (any, error) {
		var asked Checkout
		err := read(r, &asked)
		if err != nil || !model.ValidID(asked.ID) || !model.ValidID(asked.OrderID) || !asked.valid() ||
			r.Header.Get("Idempotency-Key") != asked.ID {
			return nil, errors.Join(ErrInvalid, err)
		}
		started, err := p.Start(ctx, asked)
		return started.on(r.Host), err
	})
	handle("GET /payments/{id}", func(ctx context.Context, r *http.Request) (any, error) {
		found, err := p.LookUp(ctx, r.PathValue("id"))
		return found.on(r.Host), err
	})
	handle("POST /payments/{id}/refunds", func(ctx context.Context, r *http.Request) (any, error) {
		asked, key := Refund{PaymentID: r.PathValue("id")}, r.Header.Get("Idempotency-Key")
		if err := read(r, &asked.Money); err != nil || !asked.valid() || key == "" ||
			len(key) > maxKey {
			return nil, errors.Join(ErrInvalid, err)
		}
		return asked, p.Refund(ctx, key, asked)
	})
}

func (p Payment) on(host string) Payment {
	if strings.HasPrefix(p.URL, "/") {
		p.URL = "http://" + host + p.URL
	}
	return p
}

type problem struct {
	Error string `json:"error"`
}

func (m Money) valid() bool {
	return m.Amount >= 0 && m.Amount <= model.MaxAmount && len(m.Currency) == 3
}

// read refuses what follows a document, as json.Unmarshal does and a Decoder does not.
func read(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // a client that is gone asks again
}

// Send delivers one webhook to a URL. Nil says that the receiver has it: its answer is 204.
func (s *Signatures) Send(ctx context.Context, client *http.Client, target, id string, body []byte) error {
	status, err := s.Post(ctx, client, target, id, "application/json", body)
	if err == nil && status != http.StatusNoContent {
		err = fmt.Errorf("send the webhook: the answer is %d", status)
	}
	return err
}

// Post sends a signed webhook of a media type, and returns the status of the answer.
func (s *Signatures) Post(
	ctx context.Context, client *http.Client, target, id, mediaType string, body []byte,
) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("make the webhook: %w", err)
	}
	if request.Header, err = s.Sign(id, time.Now(), body); err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", mediaType)
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("send the webhook: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer) // a short answer lets the connection live on
	return response.StatusCode, nil
}
