package config

import (
	"net/url"
	"strings"
)

// Setting is one setting as people may see it.
type Setting struct {
	Variable string
	Flag     string // of the same name, without the dashes; empty for secrets
	Value    string // effective; secrets redacted
	Default  string
	Unit     string
	Meaning  string
	Secret   bool
	Source   Source
}

// Settings lists the effective settings, secrets redacted.
func (c Config) Settings() []Setting {
	var all []Setting
	for _, s := range table(new(Config)) {
		o := c.origins[s.variable]
		shown := Setting{
			Variable: s.variable,
			Value:    o.text,
			Default:  s.fallback,
			Unit:     s.unit,
			Meaning:  s.meaning,
			Secret:   s.secret != nil,
			Source:   o.source,
		}
		if shown.Default == "" {
			shown.Default = s.otherwise
		}
		switch {
		case o.text == "":
			shown.Value = s.otherwise
		case s.secret != nil:
			shown.Value = s.secret(o.text)
		}
		if s.secret == nil {
			// Not for secrets: every user of the machine sees a command line.
			name := strings.ToLower(strings.TrimPrefix(s.variable, prefixAll))
			shown.Flag = strings.ReplaceAll(name, "_", "-")
		}
		all = append(all, shown)
	}
	return all
}

// Table lists every setting with its default and no value.
func Table() []Setting { return Config{}.Settings() }

// Markdown is the table of settings for documents.
func Markdown() string {
	var text strings.Builder
	text.WriteString("| variable | default | unit | meaning |\n|---|---|---|---|\n")
	for _, s := range table(new(Config)) {
		name, value := "`"+s.variable+"`", s.otherwise
		if s.fallback != "" {
			value = "`" + s.fallback + "`"
		}
		if s.secret != nil {
			name += " (or `…" + suffixFile + "`)"
		}
		for i, cell := range []string{name, value, s.unit, s.meaning} {
			if i == 0 {
				text.WriteByte('|')
			}
			text.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`) + " |")
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// redacted stands for a secret wherever settings are shown.
const redacted = "***"

// hide shows that there is something.
func hide(string) string { return redacted }

// showDSN shows where a database is and hides the password. Parameters are cut
// off, because some of them may be secret too.
func showDSN(text string) string {
	slash := strings.LastIndexByte(text, '/')
	if slash < 0 {
		return redacted
	}
	name, _, _ := strings.Cut(text[slash:], "?")
	at := strings.LastIndexByte(text[:slash], '@')
	if at < 0 {
		return text[:slash] + name
	}
	user, _, hasPassword := strings.Cut(text[:at], ":")
	if hasPassword {
		user += ":" + redacted
	}
	return user + text[at:slash] + name
}

// showURLs shows where servers are and hides passwords and parameters.
func showURLs(text string) string {
	var shown []string
	for part := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(part))
		if err != nil || u.Host == "" {
			return redacted
		}
		user := ""
		if u.User != nil {
			user = u.User.Username()
			if _, has := u.User.Password(); has {
				user += ":" + redacted
			} else {
				user = redacted // a name alone may be a token
			}
			user += "@"
		}
		shown = append(shown, u.Scheme+"://"+user+u.Host+u.Path)
	}
	return strings.Join(shown, ",")
}

// showKeys shows the key ids.
func showKeys(text string) string {
	parsed, err := keys(text)
	if err != nil {
		return redacted
	}
	shown := make([]string, len(parsed))
	for i, key := range parsed {
		shown[i] = key.String()
	}
	return strings.Join(shown, ",")
}
