package handler

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"seckill/model"
)

// maxBody bounds a request's body, in bytes: the contract's 16 KiB.
const maxBody = 16 << 10

// readBody reads the body of a request whose sender is known already, because
// bytes of strangers are not worth their memory, and before anything looks
// into it: 413 comes before 415, and both before 422. For the routes that take
// one it must be JSON; a body without a Content-Type is taken for JSON, which
// it then has to be.
func (a *api) readBody(c *gin.Context) {
	if c.Request.ContentLength == 0 || c.Request.Body == nil || c.Request.Body == http.NoBody {
		return
	}
	if c.Request.ContentLength > maxBody {
		a.tooLarge(c)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			a.tooLarge(c)
			return
		}
		p := problemOf(model.Invalid("body", "The body did not arrive whole."))
		p.Status = http.StatusBadRequest
		a.write(c, p)
		return
	}
	if len(body) > 0 && takesBody(c.Request.Method) && !isJSON(c.Request.Header) {
		a.abort(c, &model.Error{
			Code:   model.CodeUnsupportedMediaType,
			Detail: "The body must be application/json in UTF-8, without a content coding.",
		})
		return
	}
	c.Request.Body = io.NopCloser(bytes.NewReader(body))
	c.Request.ContentLength = int64(len(body))
}

func takesBody(method string) bool {
	return method == http.MethodPost || method == http.MethodPatch || method == http.MethodPut
}

// tooLarge also ends the connection, rather than to read on only to throw away.
func (a *api) tooLarge(c *gin.Context) {
	connectionClose(c.Writer.Header())
	a.abort(c, &model.Error{Code: model.CodePayloadTooLarge, Detail: "The body may have at most 16 KiB."})
}

func isJSON(header http.Header) bool {
	if coding := header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return false
	}
	contentType := header.Get("Content-Type")
	if contentType == "" {
		return true
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "application/json" {
		return false
	}
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8")
}
