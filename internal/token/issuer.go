package token

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	maxWaiting = 100  // requests wait for one reading; others come again, so that made-up key ids hold few
	maxWanted  = 1000 // unknown key ids between two readings; further ones come again, and are never called bad
)

// Issuer is another issuer whose tokens are accepted.
type Issuer struct {
	Name   string // the `iss` of its tokens, compared byte for byte
	Keys   string // where its JWK Set (RFC 7517) is: a URL (https, or http to this machine) or a file
	Admins bool   // it may name administrators
	// Audiences are whom its tokens may be for, instead of us. Without an audience `azp` and `client_id` count.
	Audiences []string
	Role      string // dotted path to the role, or to a list of roles; empty: `role`
	Groups    string // dotted path to a group, or to a list of groups; empty: `groups`
}

type issuer struct {
	Issuer // empty but for Admins: we

	keys atomic.Pointer[map[string]key] // by id; nil: they could not be read yet

	source  *source // nil: the keys are ours and do not change
	now     func() time.Time
	log     *slog.Logger
	waiting chan struct{} // has room for maxWaiting

	mu       sync.Mutex
	asked    time.Time     // when the last reading began that an unknown key id caused
	reading  chan struct{} // closed when the one under way ends; nil: there is none
	failures int           // of readings in a row
	document []byte        // what was read last
	// Hashed ids of unknown keys: wanted since the last reading, and those that it was to find, or found gone.
	seed           maphash.Seed
	wanted, absent map[uint64]struct{}
}

// key verifies signatures. Its algorithm is a property of the key.
type key struct {
	method   jwt.SigningMethod
	material any // of the type that the method wants
}

// newIssuer is another issuer, whose keys are not read yet.
func newIssuer(of Issuer, now func() time.Time, log *slog.Logger) (*issuer, error) {
	source, err := newSource(of.Keys)
	if err != nil {
		return nil, err
	}
	of.Role, of.Groups = cmp.Or(of.Role, "role"), cmp.Or(of.Groups, "groups")
	return &issuer{
		Issuer: of, source: source, now: now, waiting: make(chan struct{}, maxWaiting),
		log:  log.With(slog.String("issuer", of.Name), slog.String("keys", of.Keys)),
		seed: maphash.MakeSeed(), wanted: map[uint64]struct{}{}, absent: map[uint64]struct{}{},
	}, nil
}

// key finds the key with an id. An unknown one has the keys read again; only a later reading denies it.
func (i *issuer) key(ctx context.Context, id string) (key, error) {
	if found, ok := i.known(id); ok {
		return found, nil
	}
	if i.source == nil || id == "" && i.keys.Load() != nil {
		return key{}, invalid(UnknownKey, "its key id is missing or unknown")
	}
	asked := i.ask(ctx, id)
	if found, ok := i.known(id); ok {
		return found, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, absent := i.absent[i.hash(id)]; absent {
		return key{}, invalid(UnknownKey, "its key id %.100q is unknown", id)
	}
	later := max(i.asked.Add(budget.Step).Sub(i.now()), time.Second)
	return key{}, &InvalidError{
		Reason: Unread, RetryAfter: later,
		cause: fmt.Errorf("its issuer's keys have to be read first: %w", asked),
	}
}

func (i *issuer) hash(id string) uint64 { return maphash.String(i.seed, id) }

func (i *issuer) known(id string) (key, bool) {
	keys := i.keys.Load()
	if keys == nil {
		return key{}, false
	}
	found, ok := (*keys)[id]
	return found, ok
}

// ask has the keys read for an unknown id, at most once in budget.Step, and waits for the reading that is under way,
// which goes on when the caller leaves. The error says why the id may still be unknown.
func (i *issuer) ask(ctx context.Context, id string) error {
	reading := i.want(context.WithoutCancel(ctx), i.hash(id))
	if reading == nil {
		return errors.New("they were read a moment ago")
	}
	select {
	case i.waiting <- struct{}{}:
		defer func() { <-i.waiting }()
	default:
		return errors.New("too many wait for them")
	}
	select {
	case <-reading:
		return errors.New("they could not be read, or that had begun before")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// want remembers an unknown id for the next reading, and begins it if due. It returns the end of the one under way.
func (i *issuer) want(ctx context.Context, id uint64) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	due := i.reading == nil && (i.asked.IsZero() || i.now().Sub(i.asked) >= budget.Step)
	if due || len(i.wanted) < maxWanted {
		i.wanted[id] = struct{}{}
	}
	if due {
		i.asked = i.now()
		i.begin(ctx)
	}
	return i.reading
}

// begin starts a reading, unless one is under way. Its caller holds the mutex.
func (i *issuer) begin(ctx context.Context) {
	if i.reading != nil {
		return
	}
	i.reading = make(chan struct{})
	sought := i.wanted
	i.wanted = map[uint64]struct{}{}
	go i.read(ctx, sought)
}

// read reads the keys once. When that fails the last good ones are kept.
func (i *issuer) read(ctx context.Context, sought map[uint64]struct{}) {
	ctx, cancel := context.WithTimeout(ctx, budget.Answer)
	defer cancel()
	before := i.keys.Load()
	document, err := i.source.read(ctx)
	if err == nil && !bytes.Equal(document, i.document) { // only one reading is under way
		err = i.learn(ctx, document)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		i.absent = sought // those that are there were found before anybody looks here
		if before != nil {
			for id := range *before { // which may be gone
				i.absent[i.hash(id)] = struct{}{}
			}
		}
	}
	switch {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		i.failures++
		i.log.WarnContext(ctx, "the keys of a token issuer cannot be read; those known before stay valid",
			slog.Any("error", err))
	case err == nil && i.failures > 0:
		i.failures = 0
		i.log.InfoContext(ctx, "the keys of a token issuer can be read again")
	}
	close(i.reading)
	i.reading = nil
}

func (i *issuer) learn(ctx context.Context, document []byte) error {
	known, refused, err := parseKeys(document)
	if err != nil {
		return err
	}
	i.keys.Store(&known)
	i.document = document
	i.log.InfoContext(ctx, "keys of a token issuer", slog.Any("kids", slices.Sorted(maps.Keys(known))))
	for _, why := range refused {
		i.log.WarnContext(ctx, "a key of a token issuer is not used", slog.Any("reason", why))
	}
	return nil
}

func (i *issuer) run(ctx context.Context) {
	for ctx.Err() == nil {
		i.mu.Lock()
		i.begin(ctx)
		reading := i.reading
		i.mu.Unlock()
		<-reading
		poll.Pause(ctx, i.pause())
	}
}

// pause is how long to rest between two readings. A source that is away is tried soon, and then less and less often.
func (i *issuer) pause() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failures == 0 {
		return i.source.every
	}
	return backoff.Doubled(budget.Step, i.source.every, i.failures-1)
}

const (
	// Bytes of a JWK Set: a 4096 bit key with certificates has 8 KiB, and issuers have a handful.
	maxDocument  = 256 << 10
	maxRedirects = 3               // of one URL: issuers move their keys once, and a circle must end
	urlEvery     = budget.Late / 2 // between two readings of a URL, and the longest life of a withdrawn key
	fileEvery    = budget.Step     // the same for a file, which is read for nothing
)

// source is where the keys of an issuer are: a URL, or the path of a file.
type source struct {
	place  string
	client *http.Client  // nil: a file
	every  time.Duration // how often the keys are read
}

func newSource(place string) (*source, error) {
	if !strings.Contains(place, "://") {
		return &source{place: place, every: fileEvery}, nil
	}
	u, err := url.Parse(place)
	if err != nil {
		return nil, fmt.Errorf("parse where its keys are: %w", err)
	}
	if !safe(u) {
		return nil, errUnsafe
	}
	return &source{place: place, every: urlEvery, client: &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: maxDocument,
			DisableKeepAlives:      true, // the next reading is minutes away
		},
		CheckRedirect: checkRedirect,
	}}, nil
}

func (s *source) read(ctx context.Context) ([]byte, error) {
	if s.client == nil {
		return s.readFile()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.place, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	return readDocument(response.Body)
}

func (s *source) readFile() ([]byte, error) {
	// Opening a pipe would wait for its writer, whom nothing bounds.
	if info, err := os.Stat(s.place); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", s.place)
	}
	file, err := os.Open(s.place)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readDocument(file)
}

// readDocument reads to the end of a document that is not too long.
func readDocument(from io.Reader) ([]byte, error) {
	document, err := io.ReadAll(io.LimitReader(from, maxDocument+1))
	if err == nil && len(document) > maxDocument {
		err = fmt.Errorf("it is longer than %d bytes", maxDocument)
	}
	return document, err
}

var errUnsafe = errors.New("keys are read by https, or by http from this machine itself: whoever can change them on the way can name users")

// safe reports whether nobody on the way can exchange what is read from a URL.
func safe(u *url.URL) bool {
	host := u.Hostname()
	local := host == "localhost" || net.ParseIP(host).IsLoopback()
	return host != "" && (u.Scheme == "https" || u.Scheme == "http" && local)
}

// checkRedirect lets keys move to where they are as safe as before.
func checkRedirect(to *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("it was redirected more than %d times", maxRedirects)
	}
	if !safe(to.URL) || to.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https" {
		return errUnsafe
	}
	return nil
}

const minRSA = 2048 // bits: RFC 7518, section 3.3

// parseKeys reads a JWK Set. Keys that cannot be used are left out, as RFC 7517, section 5, asks, and it says why.
func parseKeys(document []byte) (known map[string]key, refused []error, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	document = bytes.TrimPrefix(document, []byte("\ufeff")) // some editors begin a file with it
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, nil, fmt.Errorf("parse a JWK Set: %w", err)
	}
	if set.Keys == nil { // an empty list withdraws all keys; this is something else
		return nil, nil, errors.New("parse a JWK Set: it has no member keys")
	}
	known = make(map[string]key, len(set.Keys))
	for n, text := range set.Keys {
		id, usable, err := parseKey(text)
		if _, twice := known[id]; err == nil && twice {
			err = errors.New("another key has the same id")
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("key %d of the set (kid %q): %w", n+1, id, err))
			continue
		}
		known[id] = usable
	}
	if _, nameless := known[""]; nameless && len(known) > 1 { // which key a token means must not be guessed
		delete(known, "")
		refused = append(refused, errors.New("a key of the set has no id and is not the only one"))
	}
	return known, refused, nil
}

// parseKey reads one JWK without its certificates: some issuers' are refused by package x509.
func parseKey(text []byte) (id string, _ key, _ error) {
	var of struct {
		ID         string   `json:"kid"`
		Operations []string `json:"key_ops"` // which go-jose does not read
	}
	if err := json.Unmarshal(text, &of); err != nil {
		return "", key{}, err
	}
	var members map[string]*json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return of.ID, key{}, err
	}
	maps.DeleteFunc(members, func(name string, _ *json.RawMessage) bool { return strings.HasPrefix(name, "x5") })
	text, err := json.Marshal(members)
	if err != nil {
		return of.ID, key{}, err
	}
	var parsed jose.JSONWebKey
	if err := json.Unmarshal(text, &parsed); err != nil {
		return of.ID, key{}, err
	}
	made, err := keyOf(parsed.Key, algorithm(parsed.Algorithm))
	switch {
	case err != nil:
	case parsed.Use != "" && parsed.Use != "sig", of.Operations != nil && !slices.Contains(of.Operations, "verify"):
		err = errors.New("it is not for signatures")
	}
	return of.ID, made, err
}

// algorithm is the jwt library's name of an algorithm: RFC 9864 has another one for EdDSA with Ed25519.
func algorithm(named string) string {
	if named == "Ed25519" {
		return jwt.SigningMethodEdDSA.Alg()
	}
	return named
}

// keyOf chooses the one algorithm of a public key: the one it names if that fits, or the usual one of its kind.
func keyOf(public any, named string) (key, error) {
	var fitting []jwt.SigningMethod // the usual one first
	switch public := public.(type) {
	case *rsa.PublicKey:
		if bits := public.N.BitLen(); bits < minRSA {
			return key{}, fmt.Errorf("it has %d bits and needs at least %d", bits, minRSA)
		}
		fitting = []jwt.SigningMethod{
			jwt.SigningMethodRS256, jwt.SigningMethodRS384, jwt.SigningMethodRS512,
			jwt.SigningMethodPS256, jwt.SigningMethodPS384, jwt.SigningMethodPS512,
		}
	case *ecdsa.PublicKey:
		for _, method := range []*jwt.SigningMethodECDSA{jwt.SigningMethodES256, jwt.SigningMethodES384, jwt.SigningMethodES512} {
			if method.CurveBits == public.Params().BitSize {
				fitting = append(fitting, method)
			}
		}
	case ed25519.PublicKey:
		fitting = []jwt.SigningMethod{jwt.SigningMethodEdDSA}
	}
	if len(fitting) == 0 { // a secret, a private key that its issuer gave away, or one of another kind
		return key{}, errors.New("it is not a public key for RS, PS or ES 256, 384 or 512, or for EdDSA")
	}
	for _, method := range fitting {
		if named == "" || named == method.Alg() {
			return key{method, public}, nil
		}
	}
	return key{}, fmt.Errorf("it is not a key for its algorithm %.20q", named)
}

// statement is all that a token says: other issuers may say it elsewhere than we do.
type statement map[string]any

func readStatement(decoded []byte) (s statement, err error) {
	reader := json.NewDecoder(bytes.NewReader(decoded))
	reader.SetNumberType(json.UnmarshalJSONNumber) // whatever its size
	if err = reader.Decode(&s); err == nil && !errors.Is(reader.Decode(new(any)), io.EOF) {
		err = errors.New("something follows the claims")
	}
	return s, err
}

func (s statement) payload() payload {
	version, _ := s["ver"].(json.Number)
	p := payload{
		Subject: s.text("sub"), Role: s.text("role"), Level: s.text("level"), Username: s.text("preferred_username"),
		Groups: s.texts("groups"), Issuer: s.text("iss"), Audience: s.texts("aud"),
		IssuedAt: s.instant("iat"), SignedIn: s.instant("auth_time"), NotBefore: s.instant("nbf"),
		Expires: s.instant("exp"),
		said:    s,
	}
	p.Version, _ = version.Int64()
	if _, there := s["level"]; there {
		p.Level = cmp.Or(p.Level, noLevel)
	}
	return p
}

func (s statement) text(name string) string {
	text, _ := s[name].(string)
	return text
}

// instant is a time. What is no number lies ahead of all times.
func (s statement) instant(name string) float64 {
	if s[name] == nil {
		return 0
	}
	number, _ := s[name].(json.Number)
	at, err := number.Float64()
	if err != nil {
		return math.MaxFloat64
	}
	return at
}

// role is what texts at a path make of the bearer: an administrator if one is admin, else a user.
func (s statement) role(path string) model.Role {
	if slices.Contains(s.texts(path), string(model.RoleAdmin)) {
		return model.RoleAdmin
	}
	return model.RoleUser
}

// accesses reports whether a token for access says this. Keycloak has a claim for it; others name events (RFC 8417).
func (s statement) accesses() bool {
	named, ok := s["typ"].(string)
	bearer := strings.EqualFold(named, "Bearer") || strings.EqualFold(named, "JWT") ||
		strings.EqualFold(named, "at+jwt")
	return (s["typ"] == nil || ok && bearer) && s["events"] == nil
}

// groups are those at a path. Keycloak writes the path of a group in the realm: `/gold` is in gold too.
func (s statement) groups(path string) []string {
	named := s.texts(path)
	for _, name := range slices.Clip(named) {
		if top, ok := strings.CutPrefix(name, "/"); ok && !slices.Contains(named, top) {
			named = append(named, top)
		}
	}
	return named
}

// texts are those at a path: a text, or a list of them. Of anything else there are none.
func (s statement) texts(path string) []string {
	switch found := find(s, path).(type) {
	case string:
		if name := path[strings.LastIndexByte(path, '.')+1:]; name == "scope" || name == "scp" {
			return strings.Fields(found) // RFC 8693, section 4.2
		}
		return []string{found}
	case []any:
		var texts []string
		for _, one := range found {
			if text, ok := one.(string); ok {
				texts = append(texts, text)
			}
		}
		return texts
	}
	return nil
}

// find follows a dotted path. Names have dots too (`https://shop.example/roles`): the longest existing one counts.
func find(in map[string]any, path string) any {
	if found, ok := in[path]; ok {
		return found
	}
	for end := strings.LastIndexByte(path, '.'); end > 0; end = strings.LastIndexByte(path[:end], '.') {
		if inner, ok := in[path[:end]].(map[string]any); ok {
			return find(inner, path[end+1:])
		}
	}
	return nil
}
