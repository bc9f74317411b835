package handler

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/gzhttp"
)

// minCompressed is the size in bytes from which an answer is compressed: below it there
// are few packets to save.
const minCompressed = 4 << 10

// newCompressor compresses the answers of large routes for clients that accept gzip, at
// the fastest level, because anybody may ask for a list.
//
// The length of a compressed answer tells something of a secret in it to an attacker who
// can write into the same answer (BREACH). No large answer repeats a token or what a request says,
// and these routes take no token from a cookie, which a foreign page could make a browser send.
func newCompressor() (gin.HandlerFunc, error) {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false))
	if err != nil {
		return nil, fmt.Errorf("make the compressor: %w", err)
	}
	return func(c *gin.Context) {
		plain := c.Writer
		defer func() { c.Writer = plain }()
		wrap(http.HandlerFunc(func(body http.ResponseWriter, _ *http.Request) {
			c.Writer = &compressing{ResponseWriter: plain, body: body}
			c.Next()
		}))(plain, c.Request)
	}, nil
}

// compressing is an answer whose body goes through the compressor.
type compressing struct {
	gin.ResponseWriter
	body http.ResponseWriter
}

func (w *compressing) Write(data []byte) (int, error) { return w.body.Write(data) }

func (w *compressing) WriteString(text string) (int, error) { return io.WriteString(w.body, text) }

// Flush sends what was written so far: an export streams compressed, too.
func (w *compressing) Flush() {
	_ = http.NewResponseController(w.body).Flush() // the compressor can
}

// Unwrap gives http.ResponseController the connection's deadlines.
func (w *compressing) Unwrap() http.ResponseWriter { return w.ResponseWriter }
