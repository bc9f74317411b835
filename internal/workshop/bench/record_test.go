package bench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// secret signs the tokens of the benchmark.
const secret = "a secret of the benchmark, 32 bytes or more"

// records are the parts in which requests differ. Each ends its request.
type records struct {
	path         string
	width        int // bytes of each
	begin, count int // the first one, and how many
}

// userName is one buyer's. All are of one length, and so their tokens are.
func userName(n int) string { return fmt.Sprintf("b%07d", n) }

// writeTokens writes the tokens of so many buyers: the ends of requests whose last header is the token's.
func writeTokens(t *testing.T, authority *token.Authority, count int) *records {
	t.Helper()
	r, write, done := newRecords(t, "tokens")
	for n := range count {
		write(bearer(t, authority, userName(n)) + "\r\n\r\n")
	}
	done()
	return r
}

// newRecords is a file to be filled.
func newRecords(t *testing.T, name string) (r *records, write func(string), done func()) {
	t.Helper()
	file := check.Value(os.CreateTemp(t.TempDir(), name))(t)
	buffered := bufio.NewWriterSize(file, 1<<20)
	r = &records{path: file.Name()}
	write = func(record string) {
		if r.width == 0 {
			r.width = len(record)
		}
		if len(record) != r.width {
			t.Fatalf("record %d of %s has %d bytes, and the others %d", r.count, filepath.Base(r.path), len(record), r.width)
		}
		check.Value(buffered.WriteString(record))(t)
		r.count++
	}
	return r, write, func() {
		check.Must(t, buffered.Flush())
		check.Must(t, file.Close())
	}
}

// part is the i-th of n parts of them, or all when there are none.
func (r *records) part(i, n int) *records {
	if r == nil {
		return nil
	}
	each := r.count / n
	return &records{path: r.path, width: r.width, begin: r.begin + i*each, count: each}
}

func bearer(t *testing.T, authority *token.Authority, user string) string {
	t.Helper()
	return check.Value(authority.Issue(token.Claims{Subject: user, Role: model.RoleUser}, 24*time.Hour))(t)
}

// targets are the first requests of a work, for the open load.
func (w work) targets(t *testing.T, url string, count int) []vegeta.Target {
	t.Helper()
	var endings *bufio.Reader
	if w.records != nil {
		if w.sells && count > w.records.count {
			t.Fatalf("%d buyers are too few for %d orders", w.records.count, count)
		}
		file := check.Value(os.Open(w.records.path))(t)
		defer file.Close()
		check.Value(file.Seek(int64(w.records.begin*w.records.width), io.SeekStart))(t)
		endings = bufio.NewReader(file)
		count = min(count, w.records.count)
	} else {
		count = 1
	}
	targets := make([]vegeta.Target, count)
	ending := make([]byte, w.width())
	for i := range targets {
		if endings != nil {
			check.Value(io.ReadFull(endings, ending))(t)
		}
		request := check.Value(http.ReadRequest(bufio.NewReader(strings.NewReader(w.head + string(ending)))))(t)
		targets[i] = vegeta.Target{Method: request.Method, URL: url + request.RequestURI, Header: request.Header}
	}
	return targets
}

func (w work) width() int {
	if w.records == nil {
		return 0
	}
	return w.records.width
}
