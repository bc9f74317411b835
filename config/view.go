package config

import (
	"strings"

	"seckill/internal/redact"
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

// redacted is shown in place of a secret wherever settings are shown.
const redacted = redact.Mark

// hide shows that there is something.
func hide(string) string { return redacted }

// showDSN shows where a database is.
func showDSN(text string) string { return redact.DSN(text) }

// showURLs shows where servers are.
func showURLs(text string) string { return redact.Addresses(text) }

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

// Secrets lists what must be seen nowhere, of an environment in the form of os.Environ:
// whatever the settings that hold secrets say, also where they cannot be used.
func Secrets(environ []string) []string {
	r := newReader(environ)
	var found []string
	for _, s := range table(new(Config)) {
		if s.secret == nil {
			continue
		}
		found = append(found, secretsIn(r.environment[s.variable])...)
		if file := r.environment[s.variable+suffixFile]; file != "" {
			text, _ := readAtMost(file, maxFile) // Load reports it
			for line := range strings.Lines(strings.TrimPrefix(string(text), byteOrderMark)) {
				found = append(found, secretsIn(strings.TrimSpace(line))...)
			}
		}
	}
	found = append(found, r.tracingSecrets()...)
	return append(found, r.secretFiles()...)
}

// secretsIn finds the secrets in a setting, whichever it is. What is no list of URLs
// is taken for everything that it might be: a DSN, a secret, and a list of secrets.
func secretsIn(text string) []string {
	found := redact.OfURLs(text)
	if strings.Contains(text, "://") && redact.Addresses(text) != redacted {
		return found
	}
	_, behind, _ := strings.Cut(text, ":") // all that is there of a DSN without an address
	found = append(append(found, text, behind), redact.OfDSN(text)...)
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		found = append(found, part)
		if key, ok := keyed(part); ok {
			found = append(found, key.Secret)
		}
	}
	return found
}
