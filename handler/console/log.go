package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"seckill/model"
)

type logPage struct {
	Actor string // empty: everybody's
	Items []logEntry

	pager
}

type logEntry struct {
	model.AdminChange

	By          string // the name of the administrator, or an id
	Differences []memberChange
	Where       string // the page of its subject
}

type memberChange struct{ Name, Words, Before, After string }

func (c *console) adminLog(r *http.Request, v *visit) (any, error) {
	query := r.URL.Query()
	page := logPage{Actor: strings.TrimSpace(query.Get("actor"))}
	actor := page.Actor
	if named, err := c.AccountByName(r.Context(), actor); err == nil {
		actor = named.ID
	}
	asked := model.AdminLogQuery{Actor: actor, Cursor: query.Get("cursor"), Limit: pageSize}
	found, err := c.AdminLog(r.Context(), asked)
	if err != nil {
		return nil, err
	}
	page.pager = turn(r.URL, found.NextCursor)
	page.Items = c.entries(v, found.Items)
	return page, nil
}

func (c *console) entries(v *visit, changes []model.AdminChange) []logEntry {
	entries := make([]logEntry, len(changes))
	for n, change := range changes {
		entries[n] = logEntry{
			AdminChange: change, By: v.by(change.Actor), Where: subjectPath(change), Differences: c.differences(v, change),
		}
	}
	return entries
}

func subjectPath(change model.AdminChange) string {
	kind, _, _ := strings.Cut(change.Action, ".")
	switch kind {
	case "order":
		return orderPath(change.Subject)
	case "account", "admin":
		return accountPath(change.Subject)
	case "letter": // it may be gone
		return Path + "/dead-letters"
	case model.SubjectEvents:
		return Path + "/events"
	case model.SubjectLimits:
		return Path + "/system"
	default:
		return voucherPath(change.Subject)
	}
}

const memberWords = "member " // begins the words for the members of what is logged

// differences compares two JSON objects, member by member. What was made has no difference.
func (c *console) differences(v *visit, change model.AdminChange) []memberChange {
	was, became := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	_ = json.Unmarshal(change.Before, &was) // what is no object, or absent, has no members
	_ = json.Unmarshal(change.After, &became)
	names := maps.Clone(was)
	maps.Copy(names, became)
	var found []memberChange
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if bytes.Equal(was[name], became[name]) || len(was) == 0 && name == "description" {
			continue
		}
		words := v.language.Text(memberWords + name)
		switch {
		// The groups of an account; a voucher's groups say who may buy it.
		case change.Action == model.ActionGroupsChange && name == "groups":
			words = v.language.Text("Groups")
		case words == memberWords+name:
			words = v.language.Text(label(name))
		}
		found = append(found, memberChange{name, words, c.value(v, name, was[name]), c.value(v, name, became[name])})
	}
	return found
}

// label is the usual word for a member: "Face value" of face_value.
func label(name string) string {
	return strings.ToUpper(name[:min(1, len(name))]) + strings.ReplaceAll(name[min(1, len(name)):], "_", " ")
}

// value is what a member of a subject is, as the pages say it elsewhere.
func (c *console) value(v *visit, name string, raw json.RawMessage) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return ""
	}
	switch value := value.(type) {
	case json.Number:
		minor, err := value.Int64()
		if err == nil && (name == "price" || name == "face_value" || name == "amount") {
			return c.money.in(v.language.Tag)(minor)
		}
		return value.String()
	case string:
		if at, err := time.Parse(time.RFC3339Nano, value); err == nil {
			return v.at(at)
		}
		if name == "state" || name == "level" || name == "status" || name == "reason" || name == "mode" ||
			name == "allocation" {
			return v.language.Text(value)
		}
		return value
	case bool:
		return v.language.Text(string(raw))
	default:
		return string(raw)
	}
}
