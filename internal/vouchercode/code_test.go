package vouchercode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"seckill/internal/workshop/check"
)

// codes draws codes whose characters rapid chooses, so that it can make them smaller.
var codes = rapid.Custom(func(t *rapid.T) Code {
	text := rapid.StringOfN(rapid.RuneFrom([]rune(alphabet)), dataLength, dataLength, -1).
		Filter(func(text string) bool { return checksum([]byte(text)) < len(alphabet) }).Draw(t, "text")
	return of(text + string(alphabet[checksum([]byte(text))]))
})

func TestCodesHaveTheirForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){4}$`)
	seen := map[string]bool{}
	used := make([]map[byte]bool, dataLength)
	for i := range used {
		used[i] = map[byte]bool{}
	}
	for range 4000 {
		code := New()
		check.Need(t, form.MatchString(code.Reveal()) && !seen[code.Reveal()], "a code is %s, or comes twice",
			code.Reveal())
		seen[code.Reveal()] = true
		for i := range used {
			used[i][code.plain()[i]] = true
		}
	}
	for i, characters := range used {
		// A character is missing with a chance of 1e-53.
		check.Equal(t, fmt.Sprint("values of character ", i), len(characters), len(alphabet))
	}
}

// Check symbols against another computation, and the specification's: 1234 is 16J, and 1234 modulo 37 is 13, or D.
func TestCheckSymbol(t *testing.T) {
	t.Parallel()
	check.Equal(t, "the check symbol of 16J", alphabet[checksum([]byte("16J"))], 'D')
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune(alphabet)), 1, 40, -1).Draw(t, "text")
		number := new(big.Int)
		for _, c := range text {
			number.Add(number.Mul(number, big.NewInt(32)), big.NewInt(int64(strings.IndexRune(alphabet, c))))
		}
		if want := number.Mod(number, big.NewInt(37)).Int64(); int64(checksum([]byte(text))) != want {
			t.Fatalf("checksum(%s) = %d, want %d", text, checksum([]byte(text)), want)
		}
	})
}

func TestWhatAPersonTypes(t *testing.T) {
	t.Parallel()
	alike := map[rune][]string{'0': {"0", "o", "O"}, '1': {"1", "i", "I", "l", "L"}}
	between := []string{"", "", "", "-", " ", "\t", "\n", "–", "—", "‑", "\u00a0", " - "}
	rapid.Check(t, func(t *rapid.T) {
		code := codes.Draw(t, "code")
		var typed strings.Builder
		for _, c := range code.plain() {
			forms := alike[c]
			if forms == nil {
				forms = []string{string(c), strings.ToLower(string(c))}
			}
			typed.WriteString(rapid.SampledFrom(forms).Draw(t, "form"))
			typed.WriteString(rapid.SampledFrom(between).Draw(t, "between"))
		}
		text := typed.String()
		read, err := Parse(text)
		if long := len(text) > longestInput; long && errors.Is(err, ErrMistyped) {
			return
		}
		if err != nil || read.Reveal() != code.Reveal() {
			t.Fatalf("%q is read as %s, %v; want %s", text, read.Reveal(), err, code.Reveal())
		}
	})
}

// Every wrong character, exchange (but first with last: 32^18 = -1 modulo 37) and wrong length is noticed.
func TestMistypedCodesAreNoticed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain := codes.Draw(t, "code").plain()
		wrong := func(text string) {
			if _, err := Parse(text); text != plain && !errors.Is(err, ErrMistyped) {
				t.Fatalf("%s is taken for a code, as %s is: %v", text, plain, err)
			}
		}
		for i := range plain {
			for _, c := range alphabet {
				wrong(plain[:i] + string(c) + plain[i+1:])
			}
			for j := range i {
				exchanged := []byte(plain)
				exchanged[i], exchanged[j] = exchanged[j], exchanged[i]
				if i-j < dataLength {
					wrong(string(exchanged))
				}
			}
			wrong(plain[:i] + plain[i+1:])
			wrong(plain[:i] + "0" + plain[i:])
		}
	})
}

func TestTextsThatAreNoCodes(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("0", dataLength) + "0"
	for _, text := range []string{
		"", " ", "-", "0", "*", strings.Repeat("0", 4096), strings.Repeat("U", length), good[1:] + "U", good[1:] + "*",
		good[1:] + "\x00", good[1:] + "\xff", good[1:] + "０", "ſ" + good[1:], "' OR 1=1 --",
	} {
		check.Is(t, text, check.ErrorOf(Parse(text)), ErrMistyped)
	}
	check.Must(t, check.ErrorOf(Parse(good)))
}

type holder struct {
	Shown  Code
	hidden Code
	deep   map[string]*Code
}

func TestNothingPrintsACode(t *testing.T) {
	t.Parallel()
	code := New()
	inside := holder{Shown: code, hidden: code, deep: map[string]*Code{"x": &code}}
	var printed bytes.Buffer
	for _, verb := range []string{"v", "+v", "#v", "s", "q", "x", "X", "d", "t", "p", "T"} {
		for _, value := range []any{code, &code, inside, &inside, []Code{code}, fmt.Errorf("order: %w", fmt.Errorf("%v", code))} {
			fmt.Fprintf(&printed, "%"+verb+"\n", value)
		}
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&printed, nil), slog.NewJSONHandler(&printed, nil)} {
		log := slog.New(handler)
		log.Info("code", slog.Any("code", code), slog.Any("pointer", &code), slog.Any("inside", inside),
			slog.Any("list", []Code{code}))
	}
	document := check.Value(json.Marshal(map[string]any{"code": code, "inside": inside, "list": []Code{code}}))(t)
	printed.Write(document)
	text := strings.ToUpper(printed.String())
	for form, secret := range map[string]string{
		"plain": code.plain(), "in groups": code.Reveal(), "in hexadecimal": fmt.Sprintf("%X", code.plain()),
	} {
		check.That(t, !strings.Contains(text, secret), "the code is printed, %s", form)
	}
	check.That(t, strings.Contains(text, "***"), "the control: nothing was printed in its place")
}

func FuzzParse(f *testing.F) {
	f.Add(New().Reveal())
	f.Add("ſſſſ-ſſſſ-ſſſſ-ſſſſ-ſſſſ")
	f.Fuzz(func(t *testing.T, text string) {
		code, err := Parse(text)
		switch {
		case errors.Is(err, ErrMistyped) && code.IsZero():
		case err != nil:
			t.Errorf("%q: %v", text, err)
		default:
			check.Equal(t, text, check.Value(Parse(code.Reveal()))(t).Reveal(), code.Reveal())
		}
	})
}

const secret = "a secret that has more than 32 bytes"

func TestKeysNeedASecret(t *testing.T) {
	t.Parallel()
	check.That(t, check.ErrorOf(NewKeys(secret[:31])) != nil, "31 bytes are taken for a secret")
	check.Must(t, check.ErrorOf(NewKeys(secret[:32])))
}

func TestACodeIsFoundBySecretAlone(t *testing.T) {
	t.Parallel()
	keys, others := check.Value(NewKeys(secret))(t), check.Value(NewKeys(secret+"!"))(t)
	rapid.Check(t, func(t *rapid.T) {
		code, other := codes.Draw(t, "code"), codes.Draw(t, "another code")
		typed, err := Parse(strings.ToLower(code.Reveal()))
		hash, same := keys.Hash(code), code.Reveal() == other.Reveal()
		if err != nil || !bytes.Equal(hash, keys.Hash(typed)) || bytes.Equal(hash, others.Hash(code)) ||
			bytes.Equal(hash, keys.Hash(other)) != same {
			t.Fatalf("a hash is not of one code and one secret: %s and %s, %v", code.Reveal(), other.Reveal(), err)
		}
	})
}

func TestACodeOpensForItsOrder(t *testing.T) {
	t.Parallel()
	keys, others := check.Value(NewKeys(secret))(t), check.Value(NewKeys(secret+"!"))(t)
	rapid.Check(t, func(t *rapid.T) {
		code := codes.Draw(t, "code")
		sealed := keys.Seal(code, "order.1")
		if len(sealed) != 48 || bytes.Contains(sealed, []byte(code.plain())) ||
			bytes.Equal(sealed, keys.Seal(code, "order.1")) {
			t.Fatalf("a sealed code is %x", sealed)
		}
		opened, err := keys.Open(sealed, "order.1")
		if err != nil || opened.Reveal() != code.Reveal() {
			t.Fatalf("opened it is %s, %v", opened.Reveal(), err)
		}
		changed := slices.Clone(sealed)
		changed[rapid.IntRange(0, len(sealed)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		for what, try := range map[string]func() (Code, error){
			"of another order":    func() (Code, error) { return keys.Open(sealed, "order.2") },
			"with another secret": func() (Code, error) { return others.Open(sealed, "order.1") },
			"with a changed bit":  func() (Code, error) { return keys.Open(changed, "order.1") },
			"cut":                 func() (Code, error) { return keys.Open(sealed[:20], "order.1") },
			"missing":             func() (Code, error) { return keys.Open(nil, "order.1") },
		} {
			if got, err := try(); err == nil || !got.IsZero() || strings.Contains(err.Error(), code.plain()) {
				t.Fatalf("a code %s: %s, %v", what, got.Reveal(), err)
			}
		}
	})
}

// What finds codes and what seals them must not be one key, and neither is printed.
func TestKeysAreApartAndSecret(t *testing.T) {
	t.Parallel()
	keys := check.Value(NewKeys(secret))(t)
	code := New()
	check.That(t, !bytes.Contains(keys.Seal(code, ""), keys.Hash(code)[:8]), "a sealed code has its hash in it")
	printed := fmt.Sprintf("%v %+v %#v %s %x %d", keys, keys, keys, keys, keys, keys)
	for _, form := range []string{"%x", "%d"} {
		check.That(t, !strings.Contains(printed, fmt.Sprintf(form, keys.lookUp)), "the key is printed")
	}
}
