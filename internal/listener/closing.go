package listener

import "net/http"

// closing asks the clients of an instance that is leaving to come back on another connection: in HTTP/1 an answer says
// that its connection is closed behind it, and HTTP/2 has GOAWAY for that, which net/http makes of the same header. A
// proxy then has no connection left on which it could send a request in the moment of the end, when the instance reads
// it no more. Connections that wait are left alone, for the same reason: each has one more answer.
//
// Whether it is leaving is asked when the answer begins, because some requests are under way for half a minute.
func closing(next http.Handler, leaving func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&closingWriter{w, leaving, false}, r)
	})
}

type closingWriter struct {
	http.ResponseWriter

	leaving func() bool
	begun   bool
}

// WriteHeader implements http.ResponseWriter.
func (w *closingWriter) WriteHeader(status int) {
	if w.leaving() {
		w.Header().Set("Connection", "close")
	}
	w.begun = w.begun || status >= http.StatusOK
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *closingWriter) Write(data []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(data)
}

// Flush implements http.Flusher, which Gin asks for.
func (w *closingWriter) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap gives http.ResponseController the connection's deadlines.
func (w *closingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *closingWriter) begin() {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
}
