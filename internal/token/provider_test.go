package token_test

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/config"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// settingOf is the setting that the page of identity providers gives for one of them.
func settingOf(t *testing.T, provider string) config.Issuer {
	t.Helper()
	page := string(check.Value(os.ReadFile("../../deployments/identity-providers.md"))(t))
	_, section, found := strings.Cut(page, "\n## "+provider+"\n")
	setting := regexp.MustCompile(`(?m)^(SECKILL_JWT_JWKS_URL)='(.*)'$`).FindStringSubmatch(section)
	if !found || setting == nil {
		t.Fatalf("the page has no setting for %s", provider)
	}
	c := check.Value(config.Load([]string{setting[1] + "=" + setting[2]}))(t)
	return c.JWTIssuers[0]
}

// TestTokensOfIdentityProviders tries the settings of the page on tokens that have the claims of these providers. EXP
// and NOW stand for their times, USER and ADMIN for a list of roles.
func TestTokensOfIdentityProviders(t *testing.T) {
	t.Parallel()
	for provider, test := range map[string]struct {
		claims string
		roles  [2]string // without and with the administrator's
		want   token.Claims
		others []string // what stands for another shop, and its replacement
	}{
		"Keycloak": {
			`{"exp":EXP,"iat":NOW,"jti":"onrtac:5b1f","iss":"https://id.example/realms/shop","aud":"account","sub":"f3a0e8d2-5c1e-4c0a-9d6e-0d1c5a4f7b11","typ":"Bearer",
			"azp":"shop-web","sid":"9b0e","acr":"1","allowed-origins":["https://shop.example"],"realm_access":{"roles":ROLES},
			"resource_access":{"account":{"roles":["manage-account","view-profile"]}},"scope":"openid email profile","email_verified":true,"name":"Ann Lee",
			"groups":["/gold"],"preferred_username":"ann@shop.example","given_name":"Ann","family_name":"Lee","email":"ann@shop.example"}`,
			[2]string{`["default-roles-shop","offline_access","uma_authorization"]`, `["offline_access","admin"]`},
			token.Claims{Subject: "f3a0e8d2-5c1e-4c0a-9d6e-0d1c5a4f7b11", Username: "ann@shop.example", Groups: []string{"/gold", "gold"}},
			[]string{`"aud":"account"`, `"aud":["broker","realm-management"]`},
		},
		"Auth0": {
			`{"https://shop.example/roles":ROLES,"https://shop.example/groups":["gold","early"],"iss":"https://shop.eu.auth0.com/","sub":"auth0|64b7f0c2a1e9d3f0c8a1b2c3",
			"aud":["https://api.shop.example","https://shop.eu.auth0.com/userinfo"],"iat":NOW,"exp":EXP,"scope":"openid profile email","azp":"k2Vq9","permissions":["read:orders"]}`,
			[2]string{`[]`, `["admin"]`},
			token.Claims{Subject: "auth0|64b7f0c2a1e9d3f0c8a1b2c3", Groups: []string{"gold", "early"}},
			[]string{`"https://api.shop.example"`, `"https://api.other.example"`},
		},
		"Entra": {
			`{"aud":"6e74172b-be56-4843-9ff4-e66a39bb12e3","iss":"https://login.microsoftonline.com/72f988bf-86f1-41af-91ab-2d7cd011db47/v2.0","iat":NOW,"nbf":NOW,"exp":EXP,
			"aio":"AXQAi/8IAAAA","azp":"6e74172b-be56-4843-9ff4-e66a39bb12e3","azpacr":"0","groups":["0e129f8a-3c1f-4d0b-9f0e-1a2b3c4d5e6f"],"name":"Ann Lee",
			"oid":"690222be-ff1a-4d56-abd1-7e4f7d38e474","preferred_username":"ann@shop.example","rh":"I","roles":ROLES,"scp":"access_as_user",
			"sub":"HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ","tid":"72f988bf-86f1-41af-91ab-2d7cd011db47","uti":"fqiBqXLPj0eQa82S-IYFAA","ver":"2.0"}`,
			[2]string{`["Buyer"]`, `["Buyer","admin"]`},
			token.Claims{Subject: "HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ", Username: "ann@shop.example", Groups: []string{"0e129f8a-3c1f-4d0b-9f0e-1a2b3c4d5e6f"}},
			[]string{`"aud":"6e74172b`, `"aud":"7e74172b`},
		},
		"Cognito": {
			`{"sub":"aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee","device_key":"aaaa","cognito:groups":ROLES,"iss":"https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_A1b2C3d4E",
			"version":2,"client_id":"57cbishk4j24pabc1234567890","origin_jti":"aaaa","event_id":"bbbb","token_use":"access","scope":"phone openid profile aws.cognito.signin.user.admin",
			"auth_time":NOW,"exp":EXP,"iat":NOW,"jti":"cccc","username":"ann"}`,
			[2]string{`["gold"]`, `["gold","admin"]`},
			token.Claims{Subject: "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", Groups: []string{"gold"}},
			[]string{`"client_id":"57`, `"client_id":"58`},
		},
		"Firebase": {
			`{"role":ROLES,"name":"Ann Lee","picture":"https://lh3.example/a","iss":"https://securetoken.google.com/shop-1234","aud":"shop-1234","auth_time":NOW,
			"user_id":"rYx2Yb3pQpWm0u1vT4sK5nL6oJ72","sub":"rYx2Yb3pQpWm0u1vT4sK5nL6oJ72","iat":NOW,"exp":EXP,"email":"ann@shop.example","email_verified":true,
			"firebase":{"identities":{"google.com":["1109"],"email":["ann@shop.example"]},"sign_in_provider":"google.com"}}`,
			[2]string{`null`, `"admin"`},
			token.Claims{Subject: "rYx2Yb3pQpWm0u1vT4sK5nL6oJ72"},
			[]string{`"aud":"shop-1234"`, `"aud":"shop-1235"`},
		},
	} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			setting := settingOf(t, provider)
			s := newSigner(t, "k", jwt.SigningMethodRS256)
			setting.Keys = filepath.Join(t.TempDir(), "keys.json")
			write(t, setting.Keys, document(t, s))
			modest := token.Issuer(setting)
			modest.Admins = false
			trust := func(issuer token.Issuer) *token.Authority {
				return authority(t, token.Trust(slog.New(slog.DiscardHandler), issuer))
			}
			signed := func(claims, roles string) string {
				now := time.Now()
				claims = strings.NewReplacer("ROLES", roles, "NOW", strconv.FormatInt(now.Unix(), 10), "EXP", strconv.FormatInt(now.Add(time.Hour).Unix(), 10)).Replace(claims)
				return signRaw(t, s.method, s.private, `{"alg":"RS256","kid":"k","typ":"JWT"}`, claims)
			}
			test.want.Issuer, test.want.Role = setting.Name, model.RoleUser
			accepted(t, trust(token.Issuer(setting)), signed(test.claims, test.roles[0]), test.want)
			accepted(t, trust(modest), signed(test.claims, test.roles[0]), test.want)
			invalid(t, trust(modest), signed(test.claims, test.roles[1]))
			invalid(t, trust(modest), signed(strings.Replace(test.claims, test.others[0], test.others[1], 1), test.roles[0]))
			if got, err := trust(token.Issuer(setting)).Verify(t.Context(), signed(test.claims, test.roles[1])); err != nil || got.Role != model.RoleAdmin {
				t.Errorf("the administrator is %+v, %v", got, err)
			}
		})
	}
}

// TestTokensOfOtherKinds: with the same keys an issuer signs tokens that are no proof of who calls.
func TestTokensOfOtherKinds(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: newPublisher(t, s).URL})
	for _, good := range []struct{ header, claims members }{
		{nil, nil},
		{members{"typ": nil}, nil},
		{members{"typ": "jwt"}, nil},
		{members{"typ": "at+jwt"}, members{"typ": "Bearer"}},
		{members{"typ": "application/AT+JWT"}, members{"typ": "at+jwt"}},
		{nil, members{"typ": "JWT", "events": nil}},
	} {
		accepted(t, a, forge(t, s.method, s.private, with(good.header, members{"kid": "k"}), with(good.claims, members{"iss": "shop"})), of("shop"))
	}
	for _, header := range []any{"logout+jwt", "secevent+jwt", "dpop+jwt", "application/logout+jwt", "refresh+jwt", "JOSE", "x"} {
		refusedAs(t, a, token.WrongType, forge(t, s.method, s.private, members{"kid": "k", "typ": header}, members{"iss": "shop"}))
		refusedAs(t, a, token.WrongType, forge(t, jwt.SigningMethodHS256, []byte(secret), members{"typ": header}, nil)) // ours too
	}
	for _, claims := range []members{
		{"typ": "Refresh"},
		{"typ": "Offline"},
		{"typ": "ID"},
		{"typ": "Logout"},
		{"typ": "refresh"},
		{"typ": []string{"Bearer"}},
		{"events": members{"http://schemas.openid.net/event/backchannel-logout": members{}}},
	} {
		refusedAs(t, a, token.WrongType, s.sign(t, "shop", claims))
	}
}

func with(some, more members) members {
	all := maps.Clone(more)
	maps.Copy(all, some)
	return all
}

// refusedAs refuses a token for one reason, which its bearer is told.
func refusedAs(t *testing.T, a *token.Authority, why token.Reason, signed string) {
	t.Helper()
	_, err := a.Verify(t.Context(), signed)
	if invalid, ok := errors.AsType[*token.InvalidError](err); !ok || invalid.Reason != why || invalid.Detail == "" {
		t.Errorf("Verify = %v, want %s", err, why)
	}
}

// TestWhereOthersSayThings: an option's path leads to a text or to a list, and nothing else that is there refuses a
// token.
func TestWhereOthersSayThings(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	keys := newPublisher(t, s).URL
	for _, test := range []struct {
		role, groups string
		claims       string
		admin        bool
		in           []string
	}{
		{"", "", `"role":"admin","groups":["a"]`, true, []string{"a"}},
		{"", "", `"role":["user","admin"],"groups":"a b"`, true, []string{"a b"}},
		{"", "", `"role":"not admin"`, false, nil},
		{"", "", `"role":{"admin":true},"groups":{"a":1}`, false, nil},
		{"", "", `"role":null,"groups":[1,"a",null,["b"]]`, false, []string{"a"}},
		{"", "", `"groups":["/gold","gold","/shop/early","//x"]`, false, []string{"/gold", "gold", "/shop/early", "//x", "shop/early", "/x"}},
		{"scope", "", `"scope":"openid admin","role":"user"`, true, nil},
		{"a.scope", "scp", `"a":{"scope":"x  admin"},"scp":"b c"`, true, []string{"b", "c"}},
		{"scope", "", `"scope":"aws.cognito.signin.user.admin"`, false, nil},
		{"a.b.c", "", `"a":{"b":{"c":["admin"]}}`, true, nil},
		{"a.b.c", "", `"a.b":{"c":["admin"]},"a":{"b":{"c":["x"]}}`, true, nil},
		{"a.b.c", "", `"a.b.c":"x","a":{"b":{"c":"admin"}}`, false, nil},
		{"a.b.c", "", `"a":[{"b":{"c":"admin"}}]`, false, nil},
		{"a.b.c", "", `"a":{"b":"admin"}`, false, nil},
		{"realm_access.roles", "", `"role":"admin"`, false, nil},
	} {
		a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: keys, Admins: true, Role: test.role, Groups: test.groups})
		signed := signRaw(t, s.method, s.private, `{"alg":"EdDSA","kid":"k"}`, `{"sub":"1","iss":"shop","aud":"seckill","exp":`+
			strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)+","+test.claims+"}")
		want := of("shop")
		if want.Groups = test.in; test.admin {
			want.Role, want.Level = model.RoleAdmin, model.LevelAdmin
		}
		if got, err := a.Verify(t.Context(), signed); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("role=%s;groups=%s of {%s}: %+v, %v", test.role, test.groups, test.claims, got, err)
		}
	}
	a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: keys, Admins: true, Role: "a.b"})
	invalid(t, a, signRaw(t, s.method, s.private, `{"alg":"EdDSA","kid":"k"}`, `{"sub":"1","iss":"shop","aud":"seckill","exp":`+
		strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)+`,"a":{"b":"user","b":"admin"}}`)) // no two readers may read different roles
}

// TestAudiencesOfIssuers: the option counts instead of the service's name, and only with it the client does where there
// is no audience.
func TestAudiencesOfIssuers(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	keys := newPublisher(t, s).URL
	plain := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: keys})
	other := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: keys, Audiences: []string{"account", "web"}})
	for _, test := range []struct {
		changed      members
		plain, other bool
	}{
		{members{"aud": "seckill"}, true, false},
		{members{"aud": "account"}, false, true},
		{members{"aud": []string{"x", "web"}}, false, true},
		{members{"aud": nil}, false, false},
		{members{"aud": []string{}}, false, false},
		{members{"aud": nil, "azp": "web"}, false, true},
		{members{"aud": nil, "client_id": "web"}, false, true},
		{members{"aud": nil, "azp": "seckill"}, false, false},
		{members{"aud": "x", "azp": "web"}, false, false},
		{members{"aud": 1, "azp": "app"}, false, false},
	} {
		for a, good := range map[*token.Authority]bool{plain: test.plain, other: test.other} {
			if _, err := a.Verify(t.Context(), s.sign(t, "shop", test.changed)); (err == nil) != good {
				t.Errorf("%v, with the option %t: %v", test.changed, a == other, err)
			}
		}
	}
}
