package token

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4/json"

	"seckill/model"
)

// statement is all that a token of another issuer says, which may stand elsewhere than in ours.
type statement map[string]any

func readStatement(part string) (statement, error) {
	decoded, err := decode(part)
	if err != nil {
		return nil, err
	}
	var s statement
	reader := json.NewDecoder(bytes.NewReader(decoded))
	reader.SetNumberType(json.UnmarshalJSONNumber) // whatever its size: no number is looked at
	return s, reader.Decode(&s)
}

// role is what the texts at a path make of the bearer: an administrator if one of
// them is admin, and a user if not, whatever else other programs read there.
func (s statement) role(path string) model.Role {
	if slices.Contains(s.texts(path), string(model.RoleAdmin)) {
		return model.RoleAdmin
	}
	return model.RoleUser
}

// accesses reports whether this is said by a token for access, where the header does not tell the kind (see
// header.accesses). Keycloak names it in a claim of its own; logout tokens and security events name events (RFC 8417).
func (s statement) accesses() bool {
	named, ok := s["typ"].(string)
	bearer := strings.EqualFold(named, "Bearer") || strings.EqualFold(named, "JWT") || strings.EqualFold(named, "at+jwt")
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

// client is whom the token was made for, where it names no audience: `azp` of
// OpenID Connect, or `client_id` of RFC 9068.
func (s statement) client() audience {
	return audience(append(s.texts("azp"), s.texts("client_id")...))
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

// find follows a dotted path. Names have dots themselves (`https://shop.example/roles`):
// the longest name that is there counts.
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
