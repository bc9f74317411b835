package simulator

import (
	"io"
	"net/http"
	"sync/atomic"
)

// Fault is one way in which a provider misbehaves.
type Fault int32

// The faults of calls.
const (
	None     Fault = iota
	Down           // the connection breaks before anything happens
	Lost           // the call is done, and the connection breaks before the answer
	Slow           // no answer until the caller has given up
	Failing        // 500
	Nonsense       // 200 with a page instead of a document
	Foreign        // 404 with a page, as from a proxy that knows no such path
	Busy           // 409: an earlier call with the key is under way
)

// Faults are what goes wrong on purpose, in tests. They may change while the simulator runs.
type Faults struct {
	Calls        atomic.Int32 // a Fault, of every call of the API
	LoseWebhooks atomic.Bool  // decisions are told to nobody
	RepeatHooks  atomic.Bool  // every webhook is sent twice
}

func (f *Faults) of() Fault {
	if f == nil {
		return None
	}
	return Fault(f.Calls.Load())
}

// Set has every later call go wrong.
func (f *Faults) Set(fault Fault) { f.Calls.Store(int32(fault)) }

// before answers a call in its place, or not at all, and reports whether it has.
func (f *Faults) before(w http.ResponseWriter, r *http.Request) bool {
	switch f.of() {
	case Down:
		panic(http.ErrAbortHandler)
	case Slow:
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the caller is gone
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case Failing:
		http.Error(w, "out of order", http.StatusInternalServerError)
	case Nonsense:
		_, _ = w.Write([]byte("<html>Welcome!</html>"))
	case Foreign:
		http.Error(w, "<html>There is nothing here.</html>", http.StatusNotFound)
	case Busy:
		refuse(w, http.StatusConflict, "a call with this key is under way")
	case None, Lost:
		return false
	}
	return true
}

// around is where a call writes its answer.
func (f *Faults) around(w http.ResponseWriter) http.ResponseWriter {
	if f.of() == Lost {
		return lostWriter{w}
	}
	return w
}

// lostWriter breaks the connection in the place of an answer.
type lostWriter struct{ http.ResponseWriter }

func (lostWriter) WriteHeader(int) { panic(http.ErrAbortHandler) }

func (f *Faults) lost() bool { return f != nil && f.LoseWebhooks.Load() }

func (f *Faults) times() int {
	if f != nil && f.RepeatHooks.Load() {
		return 2
	}
	return 1
}
