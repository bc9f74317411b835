package words_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"seckill/handler/wire"
	"seckill/internal/words"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func catalogue(t testing.TB) *words.Catalogue {
	t.Helper()
	return check.Value(words.New())(t)
}

// TestExplain: a reader's language has the refusal's own text, or else the meaning of its code.
func TestExplain(t *testing.T) {
	t.Parallel()
	chinese := catalogue(t).Asked("zh-CN")
	for want, err := range map[string]error{
		"销售已暂停。": model.Conflict("The sale is paused."),
		"未找到":    model.NotFound("unicorn"),
	} {
		check.Equal(t, err.Error(), chinese.Explain(err), want)
	}
	check.Equal(t, "in English", catalogue(t).Asked("en").Explain(model.NotFound("voucher")),
		"There is no such voucher.")
}

// TestAsked: the language of an Accept-Language, also of one that was asked for before.
func TestAsked(t *testing.T) {
	t.Parallel()
	c := catalogue(t)
	for range 2 {
		for header, want := range map[string]string{
			"": "en", "zh": "zh", "zh-TW,zh;q=0.9,en;q=0.8": "zh", "ZH-hans": "zh", "en-GB,zh;q=0.5": "en", "fr, zh;q=0.2": "zh", "fr": "en", "*": "en",
			"zh;q=0": "en", "\xff": "en", strings.Repeat("zh,", 1000): "zh",
		} {
			check.Equal(t, header, c.Asked(header).Tag, want)
		}
	}
}

// TestNoTextMixesLanguages: there is no English in the Chinese texts, and no Chinese in the English ones.
func TestNoTextMixesLanguages(t *testing.T) {
	t.Parallel()
	// Names, commands and members stay what they are; two words beside each other are a sentence.
	verb := regexp.MustCompile(`%[a-z]`)
	sentence := regexp.MustCompile(`[a-z]{2,} [a-z]{2,}`)
	for tag, mixed := range map[string]func(key, text string) bool{
		"zh": func(key, text string) bool {
			return sentence.MatchString(text) ||
				!strings.ContainsFunc(text, han) &&
					strings.ContainsFunc(verb.ReplaceAllString(text, ""), unicode.IsLetter)
		},
		"en": func(key, text string) bool { return strings.ContainsFunc(key+text, han) },
	} {
		for key, text := range texts(t, tag) {
			check.That(t, !mixed(key, text), "%s.json: %q is %q", tag, key, text)
		}
	}
}

func han(r rune) bool { return unicode.Is(unicode.Han, r) }

func texts(t testing.TB, tag string) (all map[string]string) {
	t.Helper()
	check.Must(t, json.Unmarshal(check.Value(os.ReadFile(tag+".json"))(t), &all))
	return all
}

// TestEveryCodeIsTranslated: what a code means is said in both languages, on its page and in the title of its problems.
func TestEveryCodeIsTranslated(t *testing.T) {
	t.Parallel()
	chinese := texts(t, "zh")
	for _, code := range model.Codes() {
		kind := wire.KindOf(code)
		for _, text := range []string{string(code), kind.Title, kind.Means, kind.ToDo} {
			check.That(t, chinese[text] != "", "%s: %q has no text", code, text)
		}
	}
}
