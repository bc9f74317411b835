// Package words has every text that people read, in both languages: of pages, and the titles of problems. A text is
// named by its English; zh.json has the Chinese, en.json the English of what is a word of programs.
package words

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"seckill/model"
)

//go:embed en.json zh.json
var texts embed.FS

// The languages; English is for everybody whose own is not among them.
const (
	English = "en"
	Chinese = "zh"
)

// Language is one of the two.
type Language struct {
	Tag   string            // of BCP 47
	texts map[string]string // by the English; what is absent is said as it is
	label []string          // the tag, and that an answer depends on what was asked for
}

// Label says on an answer which language it is in, and that another one may be asked for.
func (l *Language) Label(header http.Header) {
	header["Content-Language"] = l.label[0:1:1]
	if len(header["Vary"]) == 0 { // as nearly always: nothing has to be allocated
		header["Vary"] = l.label[1:2:2]
	} else {
		header.Add("Vary", l.label[1])
	}
}

// Catalogue has all texts.
type Catalogue struct {
	all     map[string]*Language
	matcher language.Matcher
	asked   *lru.Cache[string, *Language] // by the header: browsers send few different ones
}

const maxHeaders, maxHeader = 500, 200 // remembered at most, and the bytes of one

// New reads the texts.
func New() (*Catalogue, error) {
	asked, err := lru.New[string, *Language](maxHeaders)
	if err != nil {
		return nil, fmt.Errorf("make the cache of languages: %w", err)
	}
	c := &Catalogue{
		all: map[string]*Language{}, asked: asked,
		matcher: language.NewMatcher([]language.Tag{language.English, language.Chinese}),
	}
	for _, tag := range []string{English, Chinese} {
		text, err := texts.ReadFile(tag + ".json")
		if err != nil {
			return nil, fmt.Errorf("read the texts: %w", err)
		}
		c.all[tag] = &Language{Tag: tag, label: []string{tag, "Accept-Language"}}
		if err := json.Unmarshal(text, &c.all[tag].texts); err != nil {
			return nil, fmt.Errorf("read the texts in %s: %w", tag, err)
		}
	}
	return c, nil
}

// All are the languages, by tag.
func (c *Catalogue) All() map[string]*Language { return c.all }

// Asked is the best language for an Accept-Language (RFC 9110, 12.5.4).
func (c *Catalogue) Asked(accept string) *Language {
	if accept == "" {
		return c.all[English]
	}
	if known, ok := c.asked.Get(accept); ok {
		return known
	}
	best := c.all[English]
	if asked, _, err := language.ParseAcceptLanguage(accept); err == nil && len(asked) > 0 {
		if _, index, sure := c.matcher.Match(asked...); index == 1 && sure != language.No {
			best = c.all[Chinese]
		}
	}
	if len(accept) <= maxHeader {
		c.asked.Add(accept, best)
	}
	return best
}

var numbers = message.NewPrinter(language.English) //nolint:gochecknoglobals // constant: 5,769 is so in both languages

// Text is an English text in this language, with its arguments filled in.
func (l *Language) Text(key string, args ...any) string {
	if translated, ok := l.texts[key]; ok {
		key = translated
	}
	if len(args) == 0 {
		return key
	}
	return numbers.Sprintf(key, args...)
}

// Explain is an error for people: a refusal's detail in this language, or else what the error's code means.
func (l *Language) Explain(err error) string {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || refusal.Code == model.CodeInternal {
		return l.Text("Something went wrong on our side. The request's id finds it in our log.")
	}
	if refusal.Detail != "" && (l.Tag == English || l.texts[refusal.Detail] != "") {
		return l.Text(refusal.Detail)
	}
	return l.Text(string(refusal.Code))
}

// Other is the language that a switch leads to, and its own name.
func (l *Language) Other() (tag, name string) {
	if l.Tag == English {
		return Chinese, "中文"
	}
	return English, "English"
}
