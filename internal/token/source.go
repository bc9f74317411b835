package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"seckill/internal/budget"
)

const (
	// maxDocument bounds a JWK Set in bytes: a key of 4096 bits with its
	// certificates takes some 8 KiB, and issuers publish a handful.
	maxDocument = 256 << 10
	// maxRedirects bounds how often a URL may point elsewhere: issuers move their keys once, and a circle must end.
	maxRedirects = 3
	// urlEvery is how often keys are read from a URL, and so the longest that a
	// withdrawn key is still valid: issuers let their keys be cached for hours.
	urlEvery = budget.Late / 2
	// fileEvery is the same for a file, which is read for nothing.
	fileEvery = budget.Step
)

// source is where the keys of an issuer are: a URL, or the path of a file.
type source struct {
	place  string
	client *http.Client // nil: a file
}

func newSource(place string) (*source, error) {
	if !strings.Contains(place, "://") {
		return &source{place: place}, nil
	}
	u, err := url.Parse(place)
	if err != nil {
		return nil, fmt.Errorf("parse where its keys are: %w", err)
	}
	if !safe(u) {
		return nil, errUnsafe
	}
	return &source{place: place, client: &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: maxDocument,
			DisableKeepAlives:      true, // the next reading is minutes away
		},
		CheckRedirect: checkRedirect,
	}}, nil
}

// every is how often the keys are read.
func (s *source) every() time.Duration {
	if s.client == nil {
		return fileEvery
	}
	return urlEvery
}

func (s *source) read(ctx context.Context) ([]byte, error) {
	if s.client == nil {
		return s.readFile()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.place, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	return readDocument(response.Body)
}

func (s *source) readFile() ([]byte, error) {
	// Opening a pipe would wait for its writer, whom nothing bounds.
	if info, err := os.Stat(s.place); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", s.place)
	}
	file, err := os.Open(s.place)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readDocument(file)
}

// readDocument reads to the end of a document that is not too long.
func readDocument(from io.Reader) ([]byte, error) {
	document, err := io.ReadAll(io.LimitReader(from, maxDocument+1))
	if err == nil && len(document) > maxDocument {
		err = fmt.Errorf("it is longer than %d bytes", maxDocument)
	}
	return document, err
}

var errUnsafe = errors.New("keys are read by https, or by http from this machine itself: whoever can change them on the way can name users")

// safe reports whether nobody on the way can exchange what is read from a URL.
func safe(u *url.URL) bool {
	return u.Hostname() != "" && (u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()))
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// checkRedirect lets keys move to where they are as safe as before.
func checkRedirect(to *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("it was redirected more than %d times", maxRedirects)
	}
	if !safe(to.URL) || to.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https" {
		return errUnsafe
	}
	return nil
}
