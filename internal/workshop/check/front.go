package check

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// Wrong is a way in which a server misbehaves: it answers a request in the server's place, or has the server do it.
type Wrong func(w http.ResponseWriter, r *http.Request, server http.Handler)

// Front stands before a server and misbehaves when it is told to, also while it serves.
type Front struct {
	Server http.Handler
	wrong  atomic.Pointer[Wrong]
}

// Set has every later request go wrong; nil is none.
func (f *Front) Set(wrong Wrong) { f.wrong.Store(&wrong) }

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if wrong := f.wrong.Load(); wrong != nil && *wrong != nil {
		(*wrong)(w, r, f.Server)
		return
	}
	f.Server.ServeHTTP(w, r)
}

// WrongAnswers are ways in which a provider misbehaves, by their names.
func WrongAnswers() map[string]Wrong {
	says := func(status int, body string) Wrong {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { http.Error(w, body, status) }
	}
	return map[string]Wrong{
		"down": func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
		"lost": func(_ http.ResponseWriter, r *http.Request, server http.Handler) { // the call is done
			server.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		},
		"slow": func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the caller is gone
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		},
		"failing":  says(http.StatusInternalServerError, "out of order"),
		"nonsense": says(http.StatusOK, "<html>Welcome!</html>"),
		"foreign":  says(http.StatusNotFound, "<html>There is nothing here.</html>"), // as a proxy that knows no such path
		"busy":     says(http.StatusConflict, `{"error":"a call with this key is under way"}`),
	}
}
