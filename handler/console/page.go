package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"path"
	"strings"
	"time"

	"seckill/handler/wire"
	"seckill/internal/token"
	"seckill/model"
)

//go:embed pages
var pageFiles embed.FS

//go:embed static
var staticFiles embed.FS

// handle serves one request of one person; its error becomes a page.
type handle func(w http.ResponseWriter, r *http.Request, v *visit) error

// visit is what is known of the person who asks.
type visit struct {
	claims   token.Claims // zero: nobody has signed in
	language *language
	zone     *time.Location
}

// zoneCookie is the time zone of the browser, which only a script can tell.
const zoneCookie = "seckill-zone"

// public serves everybody.
func (c *console) public(do handle) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{language: c.pages.languages.of(r), zone: time.UTC}
		if cookie, err := r.Cookie(zoneCookie); err == nil {
			if zone, err := loadZone(cookie.Value); err == nil {
				v.zone = zone
			}
		}
		err := readForm(r)
		if err == nil {
			err = do(w, r, v)
		}
		if err != nil {
			c.fail(w, r, v, err)
		}
	})
}

// readForm reads the form of a request, so that no field is silently missing.
func readForm(r *http.Request) error {
	err := r.ParseForm()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &model.Error{Code: model.CodePayloadTooLarge, Detail: "The form is too large."}
	}
	if err != nil {
		return model.Invalid("body", "The form could not be read.")
	}
	return nil
}

// loadZone finds a zone of the IANA time zone database. The server's own is none that a person has chosen.
func loadZone(name string) (*time.Location, error) {
	if name == "" || strings.EqualFold(name, "local") {
		return nil, errors.New("no zone is named")
	}
	return time.LoadLocation(name)
}

// pages are the templates, by language and name.
type pages struct {
	languages languages
	templates map[string]map[string]*template.Template
}

func newPages(money money) (pages, error) {
	languages, err := newLanguages()
	if err != nil {
		return pages{}, err
	}
	names, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return pages{}, fmt.Errorf("list the console's pages: %w", err)
	}
	p := pages{languages: languages, templates: map[string]map[string]*template.Template{}}
	for tag, language := range languages.all {
		p.templates[tag] = map[string]*template.Template{}
		functions := template.FuncMap{"t": language.text, "money": money.format, "phase": phase, "rfc": rfc, "share": share}
		for _, name := range names {
			page, err := template.New("layout.html").Funcs(functions).ParseFS(pageFiles, "pages/layout.html", name)
			if err != nil {
				return pages{}, fmt.Errorf("read the page %s: %w", name, err)
			}
			p.templates[tag][strings.TrimSuffix(path.Base(name), ".html")] = page
		}
	}
	return p, nil
}

// frame is what every page shows around its own part, which is Data.
type frame struct {
	Data any

	Language             string
	OtherTag, OtherWords string // of the switch
	Back                 string // where the switch leads back to
	Section              string // of the navigation
	Username             string // empty: nobody has signed in
	Shop                 bool   // there is a shop window
	Zone                 string
	Now                  time.Time
	Done                 string // what an action has done, in words

	visit *visit
}

// At is an instant as a clock on the person's wall shows it, with its distance from UTC.
func (f frame) At(at time.Time) string {
	return at.In(f.visit.zone).Format("2006-01-02 15:04:05 -07:00")
}

// show sends a page.
func (c *console) show(w http.ResponseWriter, r *http.Request, v *visit, status int, name string, data any) error {
	f := frame{
		Data: data, Language: v.language.Tag, Back: Path, Section: section(r.URL.Path),
		Username: v.claims.Username, Shop: c.Shop, Zone: v.zone.String(), Now: time.Now(), visit: v,
	}
	f.OtherTag, f.OtherWords = v.language.other()
	if r.Method == http.MethodGet {
		f.Back = r.URL.RequestURI()
		if done, ok := results()[r.URL.Query().Get("done")]; ok {
			f.Done = v.language.text(done)
		}
	}
	var page bytes.Buffer
	if err := c.pages.templates[v.language.Tag][name].Execute(&page, f); err != nil {
		return fmt.Errorf("make the page %s: %w", name, err)
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Language", v.language.Tag)
	header.Add("Vary", "Accept-Language, Cookie")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // the browser is gone
	return nil
}

// section is the part of the console that a path belongs to.
func section(of string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(of, Path), "/")
	first, _, _ := strings.Cut(rest, "/")
	if first == "" {
		return "vouchers"
	}
	return first
}

// failure is the page of an error.
type failure struct {
	Status  int
	Refusal string
	Fields  []string
	ID      string // of the request
}

// fail shows an error and logs what people must not see.
func (c *console) fail(w http.ResponseWriter, r *http.Request, v *visit, err error) {
	code := model.CodeOf(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		code, err = model.CodeUnavailable, model.Unavailable("The answer was not known in time.", err)
	}
	f := failure{Status: wire.KindOf(code).Status, Refusal: v.language.explain(err), ID: w.Header().Get("X-Request-Id")}
	level := slog.LevelDebug
	switch {
	case f.Status == http.StatusInternalServerError:
		level = slog.LevelError
	case f.Status > http.StatusInternalServerError:
		level = slog.LevelWarn
	}
	c.Log.LogAttrs(r.Context(), level, "the console refused a request", slog.String("request_id", f.ID),
		slog.String("path", r.URL.Path), slog.String("code", string(code)), slog.Any("error", err))
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		retryAfter(w, refusal)
		for _, field := range refusal.Fields {
			f.Fields = append(f.Fields, v.language.text(field.Message))
		}
	}
	if err := c.show(w, r, v, f.Status, "failure", f); err != nil {
		c.Log.ErrorContext(r.Context(), "the page of an error failed", slog.Any("error", err))
		http.Error(w, "Something went wrong.", http.StatusInternalServerError)
	}
}

// hasOwnPage reports whether an error is a page of its own, rather than a message beside a form.
func hasOwnPage(code model.Code) bool {
	return code == model.CodeNotFound || code == model.CodeInternal
}

func notFound(http.ResponseWriter, *http.Request, *visit) error { return model.NotFound("page") }

// retryAfter says when to come back.
func retryAfter(w http.ResponseWriter, refusal *model.Error) {
	if refusal.RetryAfter > 0 {
		w.Header().Set("Retry-After", wire.RetryAfter(refusal.RetryAfter))
	}
}

// files are the scripts and the style, each with the hash of its content as its tag.
type files map[string]string

func newFiles() (files, error) {
	names, err := fs.Glob(staticFiles, "static/*")
	if err != nil {
		return nil, err
	}
	tags := files{}
	for _, name := range names {
		content, err := staticFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		tags[path.Base(name)] = `"` + hex.EncodeToString(sum[:12]) + `"`
	}
	return tags, nil
}

func (f files) serve(w http.ResponseWriter, r *http.Request, _ *visit) error {
	tag, ok := f[r.PathValue("file")]
	if !ok {
		return model.NotFound("file")
	}
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache")                        // it is asked for again, and answered with 304
	http.ServeFileFS(w, r, staticFiles, "static/"+r.PathValue("file")) //nolint:gosec // one of the embedded files, see above
	return nil
}

func rfc(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// share is a part of a whole in percent, for people.
func share(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return int64(math.Round(float64(part) / float64(whole) * 100))
}
