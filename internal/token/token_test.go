package token_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret = "0123456789abcdef0123456789abcdef"
	other  = "another secret of 32 bytes or more"
)

func authority(t testing.TB, options ...token.Option) *token.Authority {
	t.Helper()
	a := check.Value(token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill", options...))(t)
	return a
}

// refused and unread report whether an error of Verify says that a token is bad, or that its key is not known yet.
func refused(err error) bool {
	why, ok := errors.AsType[*token.InvalidError](err)
	return ok && why.Reason != token.Unread
}

func unread(err error) bool {
	why, ok := errors.AsType[*token.InvalidError](err)
	return ok && why.Reason == token.Unread
}

func TestIssuedTokensVerify(t *testing.T) {
	t.Parallel()
	a := authority(t)
	for _, want := range []token.Claims{
		{Subject: "1", Role: model.RoleUser},
		{Subject: "auth0:Some.User_1-x", Role: model.RoleAdmin, Level: model.LevelAdmin, Username: "root"},
		{Subject: strings.Repeat("x", 64), Role: model.RoleUser, Username: `quote " and ü`},
		{Subject: "1", Role: model.RoleAdmin, Level: model.LevelViewer, Version: 3},
	} {
		signed := check.Value(a.Issue(want, time.Minute))(t)
		got, err := a.Verify(t.Context(), signed)
		check.That(t, err == nil && reflect.DeepEqual(got, want), "Verify = %+v, %v; want %+v", got, err, want)
	}
}

func TestIssueRefusesWhatVerifyWouldRefuse(t *testing.T) {
	t.Parallel()
	a := authority(t)
	for name, claims := range map[string]token.Claims{
		"no subject":  {Role: model.RoleUser},
		"bad subject": {Subject: "a b", Role: model.RoleUser},
		"no role":     {Subject: "1"},
		"bad role":    {Subject: "1", Role: "root"},
		"bad level":   {Subject: "1", Role: model.RoleAdmin, Level: "root"},
	} {
		if _, err := a.Issue(claims, time.Minute); err == nil {
			t.Errorf("%s: issued", name)
		}
	}
	if _, err := a.Issue(token.Claims{Subject: "1", Role: model.RoleUser}, 0); err == nil {
		t.Error("a token without a lifetime was issued")
	}
	for role, most := range map[model.Role]time.Duration{model.RoleAdmin: 7 * 24 * time.Hour, model.RoleUser: 400 * 24 * time.Hour} {
		longest, err := a.Issue(token.Claims{Subject: "1", Role: role}, most)
		if err != nil {
			t.Errorf("%s for %s: %v", role, most, err)
		} else if _, err := a.Verify(t.Context(), longest); err != nil {
			t.Errorf("%s for %s: %v", role, most, err)
		}
		if _, err := a.Issue(token.Claims{Subject: "1", Role: role}, most+time.Second); err == nil {
			t.Errorf("%s for more than %s: issued", role, most)
		}
	}
}

// forge signs any header and claims; an absent member is one set to nil.
func forge(t testing.TB, method jwt.SigningMethod, key any, header, claims map[string]any) string {
	t.Helper()
	all := jwt.MapClaims{
		"sub": "1", "role": "user", "iss": "seckill", "aud": "seckill",
		"exp": time.Now().Add(time.Hour).Unix(),
	}
	merge(all, claims)
	unsigned := jwt.NewWithClaims(method, all)
	unsigned.Header["kid"] = "1"
	merge(unsigned.Header, header)
	signed := check.Value(unsigned.SignedString(key))(t)
	return signed
}

// signRaw signs a header and claims as they are written, right or wrong.
func signRaw(t testing.TB, method jwt.SigningMethod, key any, header, claims string) string {
	t.Helper()
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(header)) + "." + b64([]byte(claims))
	signature := check.Value(method.Sign(text, key))(t)
	return text + "." + b64(signature)
}

func merge(into, from map[string]any) {
	for name, value := range from {
		if value == nil {
			delete(into, name)
		} else {
			into[name] = value
		}
	}
}

type members = map[string]any

func TestVerify(t *testing.T) {
	t.Parallel()
	hs256, key := jwt.SigningMethodHS256, []byte(secret)
	claims := func(m members) string { return forge(t, hs256, key, nil, m) }
	header := func(m members) string { return forge(t, hs256, key, m, nil) }
	good := claims(nil)
	parts := strings.Split(good, ".")
	b64 := base64.RawURLEncoding.EncodeToString
	const plain = `{"alg":"HS256","kid":"1"}`
	written := func(header, claims string) string {
		claims = strings.ReplaceAll(claims, "EXP", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10))
		return signRaw(t, hs256, key, header, claims)
	}
	const rest = `"iss":"seckill","aud":"seckill","exp":EXP}`
	ahead := func(role string, far time.Duration) string {
		return claims(members{"role": role, "exp": time.Now().Add(far).Unix()})
	}
	const day = 24 * time.Hour
	const subject = "its sub is not a user's id, of 1 to 64 of A-Z a-z 0-9 . _ : | @ -"

	tests := map[string]struct {
		token string
		why   string // it is refused: what its bearer is told, or the reason where that is nothing
	}{
		"good":                        {good, ""},
		"admin":                       {claims(members{"role": "admin"}), ""},
		"several audiences":           {claims(members{"aud": []string{"shop", "seckill"}}), ""},
		"issued in the future":        {claims(members{"iat": time.Now().Add(time.Hour).Unix()}), ""},
		"iat of another type":         {claims(members{"iat": "yesterday"}), ""},
		"unknown claims":              {claims(members{"scope": "all", "nested": members{"a": 1}}), ""},
		"no typ":                      {header(members{"typ": nil}), ""},
		"fractional expiry":           {claims(members{"exp": float64(time.Now().Unix()) + 60.5}), ""},
		"written by hand":             {written(plain, `{"sub":"1","role":"user",`+rest), ""},
		"escaped names":               {written(`{"\u0061lg":"HS256","kid":"1"}`, `{"s\u0075b":"1","role":"user",`+rest), ""},
		"another name beside sub":     {written(plain, `{"sub":"1","role":"user","subject":"2",`+rest), ""},
		"Sub is not sub":              {written(plain, `{"Sub":"1","role":"user",`+rest), subject},
		"EXP is not exp":              {written(plain, `{"sub":"1","role":"user","iss":"seckill","aud":"seckill","Exp":EXP}`), "its exp is missing"},
		"two of a name":               {written(plain, `{"sub":"1","role":"user","role":"admin",`+rest), "malformed"},
		"two of a name, escaped":      {written(plain, `{"sub":"1","role":"user","rol\u0065":"admin",`+rest), "malformed"},
		"two of an unknown name":      {written(plain, `{"sub":"1","role":"user","x":1,"x":1,`+rest), "malformed"},
		"two algorithms":              {written(`{"alg":"HS256","alg":"HS256","kid":"1"}`, `{"sub":"1","role":"user",`+rest), "malformed"},
		"two key ids":                 {written(`{"alg":"HS256","kid":"2","kid":"1"}`, `{"sub":"1","role":"user",`+rest), "malformed"},
		"Kid is not kid":              {written(`{"alg":"HS256","Kid":"1"}`, `{"sub":"1","role":"user",`+rest), "kid"},
		"crit is null":                {written(`{"alg":"HS256","kid":"1","crit":null}`, `{"sub":"1","role":"user",`+rest), "malformed"},
		"crit is empty":               {written(`{"alg":"HS256","kid":"1","crit":[]}`, `{"sub":"1","role":"user",`+rest), "malformed"},
		"claims are a list":           {written(plain, `[]`), "malformed"},
		"claims are null":             {written(plain, `null`), "iss"},
		"something behind the claims": {written(plain, `{"sub":"1","role":"user",`+rest+`{}`), "malformed"},
		"user for a year":             {ahead("user", 366*day), ""},
		"user for two years":          {ahead("user", 731*day), "its exp is no time, or too far ahead"},
		"admin for six days":          {ahead("admin", 6*day), ""},
		"admin for eight days":        {ahead("admin", 8*day), "its exp is no time, or too far ahead"},
		"expiry in milliseconds":      {claims(members{"exp": time.Now().UnixMilli()}), "its exp is no time, or too far ahead"},
		"expiry beyond all numbers":   {claims(members{"exp": 1e300}), "its exp is no time, or too far ahead"},
		"expiry before 1970":          {claims(members{"exp": -1e300}), "its exp has passed"},
		"not before all numbers":      {claims(members{"nbf": 1e300}), "its nbf is no time, or still ahead"},
		"alg none":                    {forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil), "alg"},
		"alg none in another case":    {b64([]byte(`{"alg":"nOnE","kid":"1"}`)) + "." + parts[1] + ".", "alg"},
		"HS512":                       {forge(t, jwt.SigningMethodHS512, key, nil, nil), "alg"},
		"HS384":                       {forge(t, jwt.SigningMethodHS384, key, nil, nil), "alg"},
		"header lies about algorithm": {header(members{"alg": "HS512"}), "alg"},
		"no algorithm":                {header(members{"alg": nil}), "alg"},
		"other key":                   {forge(t, hs256, []byte(other), nil, nil), "signature"},
		"unknown kid":                 {header(members{"kid": "2"}), "kid"},
		"missing kid":                 {header(members{"kid": nil}), "kid"},
		"empty kid":                   {header(members{"kid": ""}), "kid"},
		"kid of another type":         {header(members{"kid": 1}), "malformed"},
		"critical extension":          {header(members{"crit": []string{"b64"}, "b64": false}), "malformed"},
		"no exp":                      {claims(members{"exp": nil}), "its exp is missing"},
		"expired":                     {claims(members{"exp": time.Now().Add(-time.Minute).Unix()}), "its exp has passed"},
		"username is a number":        {claims(members{"preferred_username": 1}), ""},
		"exp is text":                 {claims(members{"exp": "tomorrow"}), "its exp is no time, or too far ahead"},
		"nbf is text":                 {claims(members{"nbf": "yesterday"}), "its nbf is no time, or still ahead"},
		"not yet valid":               {claims(members{"nbf": time.Now().Add(time.Hour).Unix()}), "its nbf is no time, or still ahead"},
		"no issuer":                   {claims(members{"iss": nil}), "iss"},
		"wrong issuer":                {claims(members{"iss": "Seckill"}), "iss"},
		"no audience":                 {claims(members{"aud": nil}), "its aud does not name this service"},
		"empty audience":              {claims(members{"aud": []string{}}), "its aud does not name this service"},
		"wrong audience":              {claims(members{"aud": "shop"}), "its aud does not name this service"},
		"no subject":                  {claims(members{"sub": nil}), subject},
		"subject with a space":        {claims(members{"sub": "a b"}), subject},
		"subject too long":            {claims(members{"sub": strings.Repeat("x", 65)}), subject},
		"subject is a number":         {claims(members{"sub": 1}), subject},
		"no role":                     {claims(members{"role": nil}), "its role is neither user nor admin"},
		"unknown role":                {claims(members{"role": "root"}), "its role is neither user nor admin"},
		"role in another case":        {claims(members{"role": "Admin"}), "its role is neither user nor admin"},
		"role is a list":              {claims(members{"role": []string{"admin"}}), "its role is neither user nor admin"},
		"no signature":                {parts[0] + "." + parts[1] + ".", "signature"},
		"signature cut by two bytes":  {good[:len(good)-3], "signature"},
		"signature cut in a byte":     {good[:len(good)-2], "malformed"},
		"claims exchanged":            {parts[0] + "." + b64([]byte(`{"sub":"2"}`)) + "." + parts[2], "iss"},
		"padding added":               {good + "=", "malformed"},
		"line break in the signature": {good[:len(good)-4] + "\n" + good[len(good)-4:], "malformed"},
		"fourth part":                 {good + ".x", "malformed"},
		"two parts":                   {parts[0] + "." + parts[1], "malformed"},
		"header is no JSON":           {b64([]byte("x")) + "." + parts[1] + "." + parts[2], "malformed"},
		"header is no base64":         {"!." + parts[1] + "." + parts[2], "malformed"},
		"garbage":                     {"garbage", "malformed"},
		"only dots":                   {"..", "malformed"},
		"empty":                       {"", "malformed"},
		"two subjects":                {written(plain, `{"sub":"1","sub":"2",`+rest), "malformed"},
		"no kind of level":            {claims(members{"role": "admin", "level": "root"}), "its level is none of viewer, cashier, operator and admin"},
		"issuer is a number":          {claims(members{"iss": 1}), "iss"},
		"audience is a number":        {claims(members{"aud": []int{1}}), "its aud does not name this service"},
		"wrong in several ways":       {forge(t, hs256, []byte(other), nil, members{"exp": 1}), "signature"},
		"not yet valid by a minute":   {claims(members{"nbf": time.Now().Add(time.Minute).Unix()}), "its nbf is no time, or still ahead"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &check.Log{}
			var counted []string
			a := authority(t, token.Report(log.Logger(),
				func(issuer string, why token.Reason) { counted = append(counted, issuer+" "+string(why)) }))
			got, err := a.Verify(t.Context(), test.token)
			if test.why == "" {
				check.That(t, err == nil && got.Subject == "1" && len(counted) == 0,
					"Verify = %+v, %v; want it accepted", got, err)
				return
			}
			refused, ok := errors.AsType[*token.InvalidError](err)
			check.Need(t, ok && reflect.ValueOf(got).IsZero(), "Verify = %+v, %v; want it refused", got, err)
			why, told := strings.CutPrefix(refused.Detail, "The token is not accepted: ")
			if !told {
				why = string(refused.Reason)
			} else if !strings.HasPrefix(why, "its "+string(refused.Reason)+" ") {
				t.Errorf("%s is told as %q", refused.Reason, why)
			}
			check.That(t, strings.HasPrefix(why, test.why), "the reason is %q, want %q", why, test.why)
			issuer := "seckill"
			if refused.Reason == token.Malformed || refused.Reason == token.UnknownIssuer {
				issuer = token.Stranger
			}
			check.Equal(t, "what is counted", fmt.Sprint(counted), fmt.Sprintf("[%s %s]", issuer, refused.Reason))
			if !log.Has("level=INFO", "a token is refused", "issuer="+issuer, "reason="+string(refused.Reason),
				"error=") {
				t.Errorf("the log says %s", log)
			}
		})
	}
}

// TestNamesAreExact: no other spelling wins over a name. To encoding/json each of these is an administrator or user 2.
func TestNamesAreExact(t *testing.T) {
	t.Parallel()
	a := authority(t)
	expires := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	for _, claims := range []string{
		`{"sub":"1","role":"user","Role":"admin",`, `{"Role":"admin","sub":"1","role":"user",`,
		`{"sub":"1","role":"user","ROLE":"admin",`, `{"sub":"1","role":"user","ſub":"2",`, `{"sub":"1","role":"user","Sub":"2",`,
	} {
		signed := signRaw(t, jwt.SigningMethodHS256, []byte(secret), `{"alg":"HS256","kid":"1"}`,
			claims+`"iss":"seckill","aud":"seckill","exp":`+expires+`}`)
		if got, err := a.Verify(t.Context(), signed); err != nil ||
			!reflect.DeepEqual(got, token.Claims{Subject: "1", Role: model.RoleUser}) {
			t.Errorf("%s: %+v, %v", claims, got, err)
		}
	}
}

// TestLevels: an administrator's level stands beside the role. A token without one is old, an unknown one is refused.
func TestLevels(t *testing.T) {
	t.Parallel()
	a := authority(t)
	for claims, want := range map[string]model.Level{
		`"role":"admin"`: model.LevelAdmin, `"role":"admin","level":"admin"`: model.LevelAdmin,
		`"role":"admin","level":"viewer"`: model.LevelViewer, `"role":"admin","jti":"x","level":"cashier"`: model.LevelCashier,
		`"role":"admin","level":"operator"`: model.LevelOperator,
		`"role":"admin","level":""`:         "refused", `"role":"admin","level":"Viewer"`: "refused", `"role":"admin","level":"root"`: "refused",
		`"role":"admin","level":["viewer"]`: "refused", `"role":"admin","level":7`: "refused", `"role":"admin","level":null`: "refused",
		`"role":"user","level":"admin"`: "", `"role":"user","level":7`: "",
	} {
		signed := signRaw(t, jwt.SigningMethodHS256, []byte(secret), `{"alg":"HS256","kid":"1"}`,
			`{"sub":"1",`+claims+`,"iss":"seckill","aud":"seckill","exp":`+strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)+`}`)
		got, err := a.Verify(t.Context(), signed)
		if want == "refused" && !refused(err) || want != "refused" && (err != nil || got.Level != want) {
			t.Errorf("%s: %+v, %v; want the level %q", claims, got, err, want)
		}
	}
}

// Whatever else stands in ver is no reason to refuse a token.
func TestOnlyNumbersAreVersions(t *testing.T) {
	t.Parallel()
	a := authority(t)
	for name, version := range map[string]any{"text": "2.0", "fraction": 1.5, "list": []int{1}, "nothing": nil, "huge": 1e300} {
		signed := forge(t, jwt.SigningMethodHS256, []byte(secret), nil, members{"ver": version})
		got, err := a.Verify(t.Context(), signed)
		check.That(t, err == nil && got.Version == 0, "%s: %+v, %v", name, got, err)
	}
}

// TestClocksDiffer: the clocks of the issuer and of the service may differ by half a minute, and no more.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	const apart, week = 30 * time.Second, 7 * 24 * time.Hour
	for _, test := range []struct {
		claim string
		at    time.Time
		past  time.Duration // noon
		valid bool
	}{
		{"exp", noon, -time.Hour, true},
		{"exp", noon, 0, true},
		{"exp", noon, time.Second, true},
		{"exp", noon, apart - 1, true},
		{"exp", noon, apart, false},
		{"exp", noon, time.Hour, false},
		{"nbf", noon, 0, true},
		{"nbf", noon, -time.Second, true},
		{"nbf", noon, -apart, true},
		{"nbf", noon, -apart - 1, false},
		{"exp", noon.Add(week), 0, true},
		{"exp", noon.Add(week), -apart, true},
		{"exp", noon.Add(week), -apart - time.Second, false},
	} {
		claims := members{"role": "admin", "exp": noon.Add(2 * time.Hour).Unix()}
		claims[test.claim] = test.at.Unix()
		signed := forge(t, jwt.SigningMethodHS256, []byte(secret), nil, claims)
		a := authority(t, token.Clock(func() time.Time { return noon.Add(test.past) }))
		_, err := a.Verify(t.Context(), signed)
		check.That(t, (err == nil) == test.valid, "%s %s, %s past noon: %v", test.claim, test.at, test.past, err)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	before := authority(t)
	after := check.Value(token.New([]token.Key{{ID: "2026-11", Secret: other}, {ID: "1", Secret: secret}}, "seckill",
		"seckill"))(t)
	claims := token.Claims{Subject: "1", Role: model.RoleUser}
	old := check.Value(before.Issue(claims, time.Minute))(t)
	check.Is(t, "a token of the old key", check.ErrorOf(after.Verify(t.Context(), old)), nil)
	fresh := check.Value(after.Issue(claims, time.Minute))(t)
	check.Is(t, "a token of the new key", check.ErrorOf(after.Verify(t.Context(), fresh)), nil)
	if _, err := before.Verify(t.Context(), fresh); !refused(err) {
		t.Errorf("the new key is unknown to the old authority: %v", err)
	}
	// The secret of one key does not sign for the id of another.
	mixed := forge(t, jwt.SigningMethodHS256, []byte(secret), members{"kid": "2026-11"}, nil)
	if _, err := after.Verify(t.Context(), mixed); !refused(err) {
		t.Errorf("a key signed for the id of another: %v", err)
	}
}

func TestNewRefusesWhatIsNoAuthority(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]token.Key{"no keys": nil, "short secret": {{ID: "1", Secret: secret[1:]}}} {
		_, err := token.New(keys, "i", "a")
		check.That(t, err != nil, "%s is accepted", name)
	}
}

// One token has one spelling: unchecked, the idle bits of its last character would make twins that no list knows.
func TestATokenHasOneSpelling(t *testing.T) {
	t.Parallel()
	a := authority(t)
	good := check.Value(a.Issue(token.Claims{Subject: "1", Role: model.RoleUser}, time.Minute))(t)
	check.Must(t, check.ErrorOf(a.Verify(t.Context(), good)))
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, good[len(good)-1])
	for other := range len(alphabet) {
		if other == last {
			continue
		}
		spelt := good[:len(good)-1] + alphabet[other:other+1]
		if _, err := a.Verify(t.Context(), spelt); !refused(err) {
			t.Errorf("with %c at the end instead of %c: %v", alphabet[other], alphabet[last], err)
		}
	}
	for _, spelt := range []string{good + "=", good + "\n", strings.Replace(good, ".", ".\r\n", 1)} {
		if _, err := a.Verify(t.Context(), spelt); !refused(err) {
			t.Errorf("%q: %v", spelt, err)
		}
	}
}

// TestRefusalsOfOthersSayWhy: under a good signature the bearer learns the wrong claim; its issuer's count grows.
func TestRefusalsOfOthersSayWhy(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	var counted []string
	a := authority(t, token.Trust(slog.New(slog.DiscardHandler),
		token.Issuer{Name: "shop", Keys: newPublisher(t, s).URL}),
		token.Report(slog.New(slog.DiscardHandler),
			func(issuer string, why token.Reason) { counted = append(counted, issuer+" "+string(why)) }))
	accepted(t, a, s.sign(t, "shop", nil), of("shop")) // its keys are read
	for _, test := range []struct{ token, detail string }{
		{s.sign(t, "shop", members{"role": "admin"}), "its role is admin, which its issuer may not name"},
		{s.sign(t, "shop", members{"exp": 1}), "its exp has passed"},
	} {
		_, err := a.Verify(t.Context(), test.token)
		invalid, ok := errors.AsType[*token.InvalidError](err)
		check.That(t, ok && strings.Contains(invalid.Detail, test.detail), "Verify = %v, want %q", err, test.detail)
	}
	unknownYet(t, a, newSigner(t, "x", s.method).sign(t, "shop", nil))
	check.Equal(t, "what is counted", strings.Join(counted, ", "), "shop role, shop exp, shop unread")
}

// TestRefusalsAreLoggedOnceAMinute: bad tokens fill no log, and hide no other issuer's refusals, nor another reason.
func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	log, c := &check.Log{}, newClock()
	var mu sync.Mutex
	counted := 0
	a := authority(t, token.Clock(c.Now), token.Report(log.Logger(), func(string, token.Reason) {
		mu.Lock()
		defer mu.Unlock()
		counted++
	}))
	expired := forge(t, jwt.SigningMethodHS256, []byte(secret), nil, members{"exp": 1})
	for minute, want := range []int{1, 2, 3} {
		check.Volley(100, func(int) { _, _ = a.Verify(t.Context(), expired) })
		got := strings.Count(log.String(), "reason=exp")
		check.That(t, got == want, "minute %d: %d lines\n%s", minute+1, got, log)
		c.advance(59 * time.Second)
		_, _ = a.Verify(t.Context(), expired)
		c.advance(time.Second)
	}
	a.Ended(t.Context(), token.Claims{Subject: "1", Role: model.RoleUser}, errors.New("the password was changed"))
	check.Equal(t, "counted", counted, 304)
	if !log.Has("reason=exp", "not_logged_since=100") ||
		!log.Has("issuer=seckill", "reason=ended", "the password was changed") {
		t.Errorf("the log says\n%s", log)
	}
	check.Equal(t, "lines", strings.Count(log.String(), "\n"), 4)
}

// TestStrangersNamesAreCutShort: what stands in a token that nobody has signed is data.
func TestStrangersNamesAreCutShort(t *testing.T) {
	t.Parallel()
	log := &check.Log{}
	a := authority(t, token.Report(log.Logger(), func(string, token.Reason) {}))
	_, _ = a.Verify(t.Context(), forge(t, jwt.SigningMethodHS256, []byte(other), nil,
		members{"iss": "x\n" + strings.Repeat("é", 5000)}))
	line := log.String()
	check.That(t, strings.Count(line, "\n") == 1 && len(line) <= 600 && log.Has("reason=iss"), "the log says\n%s", line)
}

// An invitation is for a version of an account, for a day, and is no token; nobody makes one without the secret.
func TestInvitations(t *testing.T) {
	t.Parallel()
	now := time.Now()
	keys := []token.Key{{ID: "1", Secret: strings.Repeat("s", token.MinSecret)}}
	a := check.Value(token.New(keys, "x", "x", token.Clock(func() time.Time { return now })))(t)
	other := check.Value(token.New([]token.Key{{ID: "1", Secret: strings.Repeat("o", token.MinSecret)}}, "x", "x"))(t)
	invitation := check.Value(a.Invite("a1", 3))(t)
	id, version, ok := a.Invited(invitation)
	check.That(t, id == "a1" && version == 3 && ok, "it is for %s, version %d: %v", id, version, ok)
	for name, wrong := range map[string]string{
		"of another secret": check.Value(other.Invite("a1", 3))(t), "of another account": strings.Replace(invitation, "a1", "a2", 1),
		"of another version": strings.Replace(invitation, ".3.", ".4.", 1), "longer": invitation + ".x", "none": "",
	} {
		_, _, ok := a.Invited(wrong)
		check.That(t, !ok, "an invitation %s is taken", name)
	}
	_, err := a.Verify(t.Context(), invitation)
	check.That(t, err != nil, "an invitation is a token")
	now = now.Add(24 * time.Hour)
	_, _, ok = a.Invited(invitation)
	check.That(t, !ok, "a day later it is taken")
}
