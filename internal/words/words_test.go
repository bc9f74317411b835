package words_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// TestSay: what was made of a text with values in it is known again, and words among the values are said, too.
func TestSay(t *testing.T) {
	t.Parallel()
	chinese := catalogue(t).Asked("zh-CN")
	for text, want := range map[string]string{
		"The token is not accepted: its sub is not a user's id, of 1 to 64 of A-Z a-z 0-9 . _ : | @ -.": "令牌未被接受：sub 不是有效的用户编号（1 到 64 个字符 A-Z a-z 0-9 . _ : | @ -）。",
		"The sale is paused.":                                                  "销售已暂停。",
		"An order that is canceled cannot be paid.":                            "已取消的订单不能变为已付款。",
		"There is no such voucher.":                                            "没有这张代金券。",
		"There is no such dead letter.":                                        "没有这封死信。",
		"A password has 10 to 128 characters.":                                 "密码须有 10 到 128 个字符。",
		"must not have control or invisible characters (U+0007 at position 3)": "不能有控制字符或不可见字符（第 3 位的 U+0007）",
		"Nobody has ever said this.":                                           "",
	} {
		said, known := chinese.Say(text)
		check.Equal(t, text+" is known", known, want != "")
		if known {
			check.Equal(t, text, said, want)
		}
	}
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
			if got := c.Asked(header).Tag; got != want {
				t.Errorf("%.40q is asked for and %s answered", header, got)
			}
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
			return sentence.MatchString(text) || !strings.ContainsFunc(text, han) && strings.ContainsFunc(verb.ReplaceAllString(text, ""), unicode.IsLetter)
		},
		"en": func(key, text string) bool { return strings.ContainsFunc(key+text, han) },
	} {
		for key, text := range texts(t, tag) {
			if mixed(key, text) {
				t.Errorf("%s.json: %q is %q", tag, key, text)
			}
		}
	}
}

func han(r rune) bool { return unicode.Is(unicode.Han, r) }

func texts(t testing.TB, tag string) (all map[string]string) {
	t.Helper()
	check.Must(t, json.Unmarshal(check.Value(os.ReadFile(tag+".json"))(t), &all))
	return all
}

// TestEveryRefusalIsTranslated: whatever the source refuses with has a Chinese text, found where such texts are written: as
// the detail or the message of an error, or as the argument of a function that makes one.
func TestEveryRefusalIsTranslated(t *testing.T) {
	t.Parallel()
	chinese := catalogue(t).Asked("zh")
	found := 0
	for _, code := range model.Codes() {
		kind := wire.KindOf(code)
		for _, text := range []string{kind.Title, kind.Means, kind.ToDo} {
			if _, known := chinese.Say(text); !known {
				t.Errorf("%s: %q has no text", code, text)
			}
		}
	}
	for _, room := range []string{"handler", "service", "model", "repository", "queue", "internal/token"} {
		check.Must(t, filepath.WalkDir("../../"+room, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "test/") {
				return err
			}
			file := check.Value(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)
			ast.Inspect(file, func(node ast.Node) bool {
				for _, text := range refusals(node) {
					found++
					if _, known := chinese.Say(text); !known {
						t.Errorf("%s: %q has no text", strings.TrimPrefix(path, "../../"), text)
					}
				}
				return true
			})
			return nil
		}))
	}
	check.That(t, found > 150, "only %d refusals were found: they are written elsewhere", found)
}

// refusals are the texts that a node refuses with.
func refusals(node ast.Node) (found []string) {
	members := []string{"Detail", "Message", "Conflict", "refused"}
	switch node := node.(type) {
	case *ast.KeyValueExpr:
		if name, ok := node.Key.(*ast.Ident); ok && slices.Contains(members, name.Name) {
			found = append(found, literal(node.Value))
		}
	case *ast.AssignStmt:
		for i, to := range node.Lhs {
			if field, ok := to.(*ast.SelectorExpr); ok && slices.Contains(members, field.Sel.Name) && i < len(node.Rhs) {
				found = append(found, literal(node.Rhs[i]))
			}
		}
	case *ast.CallExpr:
		name := ""
		switch called := node.Fun.(type) {
		case *ast.Ident:
			name = called.Name
		case *ast.SelectorExpr:
			name = called.Sel.Name
		}
		at, there := map[string]int{"Invalid": 1, "Conflict": 0, "Unavailable": 0, "tooMany": 0, "refuseRate": 4, "check": 2, "NotFound": 0, "wrongClaim": 1}[name]
		if there && at < len(node.Args) {
			text := literal(node.Args[at])
			switch {
			case name == "NotFound" && text != "":
				text = "There is no such " + text + "."
			case name == "wrongClaim" && text != "":
				claim, _ := node.Args[0].(*ast.Ident)
				text = "its " + map[string]string{
					"WrongSubject": "sub", "WrongRole": "role", "WrongLevel": "level", "WrongExpiry": "exp", "WrongNotBefore": "nbf", "WrongAudience": "aud",
				}[claim.Name] + " " + text
			case name == "Unavailable" && text != "" && !unicode.IsUpper(rune(text[0])):
				text = "" // a line of /readyz, for operators
			}
			found = append(found, text)
		}
	}
	return slices.DeleteFunc(found, func(text string) bool { return text == "" || text == "%s" })
}

// literal is a text as it is written, or the form that fmt makes one of; empty: it is neither.
func literal(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		if x, y := literal(e.X), literal(e.Y); x != "" && y != "" {
			return x + y
		}
	case *ast.CallExpr:
		if called, ok := e.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "Sprintf" {
			return literal(e.Args[0])
		}
	}
	return ""
}
