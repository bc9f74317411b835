package archtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

const recordPage = "deployments/bench/README.md"

// quotes are what pages say of the newest record. {row/column} is a cell of it; {aim: row} is what was measured and,
// where that misses the aim, the aim beside it.
var quotes = map[string][]string{
	recordPage: {
		"**How many orders a second, on two cores?** {async 128/answers/s} in async and {sync 128/answers/s} in sync,",
		"costs less: {sold-out 128/answers/s} hear",
		"at once?** {aim: a hundred vouchers, async, times one's CPU} times the CPU time of an order in async, " +
			"and {aim: a hundred vouchers, sync, times one's CPU} in sync:",
		"in sync: {async-100 128/answers/s} and {sync-100 128/answers/s} orders a second.",
	},
	"README.md": {
		"[The record](deployments/bench/README.md) is of {date} (commit {commit});",
		"| speed, `sync` | {sync 128/of the yardstick}; CPU {aim: CPU of an order, sync, yardsticks} |",
		"| speed, `async` | {async 128/of the yardstick}; CPU {aim: CPU of an order, async, yardsticks}; rows",
		"| `SOLD_OUT` | {sold-out 128/of the yardstick} |",
	},
	"README.zh-CN.md": {
		"[最新记录](deployments/bench/README.md)测于{日期}（提交 {commit}）；",
		"| 速度，`sync` | {sync 128/of the yardstick}；CPU {aim: CPU of an order, sync, yardsticks} |",
		"| 速度，`async` | {async 128/of the yardstick}；CPU {aim: CPU of an order, async, yardsticks}；落库",
		"| `SOLD_OUT` | {sold-out 128/of the yardstick} |",
	},
}

var (
	recorded = regexp.MustCompile(`(?s)<!-- record -->\n(.*)<!-- end of the record -->`)
	cellName = regexp.MustCompile(`\{[^}]+\}`)
)

// cells are those of the record's tables, by row and column.
func cells(files []file) map[string]string {
	all := map[string]string{}
	at := slices.IndexFunc(files, func(f file) bool { return f.path == recordPage })
	if at < 0 {
		return all
	}
	text := recorded.FindString(files[at].text)
	if match := regexp.MustCompile(`Measured on (.*?), commit (\w+\+?)`).FindStringSubmatch(text); match != nil {
		all["date"], all["commit"] = match[1], match[2]
		if day, err := time.Parse("2 January 2006", match[1]); err == nil {
			all["日期"] = day.Format(" 2006 年 1 月 2 日")
		}
	}
	var columns []string
	for line := range strings.Lines(text) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
		case columns == nil:
			columns = row
		case columns[1] == "load":
			for i := 2; i < len(row); i++ {
				all[row[0]+" "+row[1]+"/"+columns[i]] = row[i]
			}
		case columns[0] == "aim":
			if all["aim: "+row[0]] = row[2]; row[3] == "missed" {
				all["aim: "+row[0]] += " (aim " + row[1] + ")"
			}
		}
	}
	return all
}

// misquoted finds what pages say of the record otherwise than it is there, or puts it right.
func misquoted(files []file, right func(path, text string)) (found []string) {
	all := cells(files)
	for _, f := range files {
		text := f.text
		for _, quote := range quotes[f.path] {
			says := cellName.ReplaceAllStringFunc(quote, func(name string) string {
				cell, there := all[name[1:len(name)-1]]
				if !there {
					found = append(found, f.path+": the record has no "+name)
				}
				if strings.HasSuffix(f.path, ".zh-CN.md") {
					cell = strings.NewReplacer(" (aim ", "（目标 ", ")", "）").Replace(cell)
				}
				return cell
			})
			parts := cellName.Split(quote, -1)
			for i := range parts {
				parts[i] = strings.ReplaceAll(regexp.QuoteMeta(parts[i]), " ", `\s`)
			}
			any := regexp.MustCompile(strings.Join(parts, `([^|\n]*?)`))
			if match := any.FindString(text); match == "" || strings.ReplaceAll(match, "\n", " ") != says {
				found = append(found, f.path+": it is to say: "+says)
				text = any.ReplaceAllLiteralString(text, says)
			}
		}
		if right != nil && text != f.text {
			right(f.path, text)
		}
	}
	return found
}

// TestRecord holds what pages say of the newest record. With UPDATE=1 it first puts the one that was just taken,
// bin/bench.md, into its page, and its figures where they are quoted.
func TestRecord(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	if os.Getenv("UPDATE") != "" {
		files := repository(t)
		write := func(name, text string) { check.Must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600)) }
		record, err := os.ReadFile(filepath.Join(root, "bin/bench.md"))
		check.Need(t, err == nil || errors.Is(err, fs.ErrNotExist), "%v", err)
		for i := range files {
			if files[i].path == recordPage && err == nil {
				fresh := "<!-- record -->\n" + string(record) + "<!-- end of the record -->"
				files[i].text = recorded.ReplaceAllLiteralString(files[i].text, fresh)
				write(recordPage, files[i].text)
			}
		}
		misquoted(files, write)
	}
	report(t, misquoted(repository(t), nil))

	page := file{path: recordPage, text: "<!-- record -->\nMeasured on 3 May 2026, commit abc+, on\n\n" +
		"| case | load | answers/s | of the yardstick |\n|---|---|---|---|\n| sync | 128 | 900 | 0.25 |\n\n" +
		"| aim | at most | measured | |\n|---|---|---|---|\n| CPU of an order, sync, yardsticks | 3 | 4.00 | missed |\n" +
		"<!-- end of the record -->"}
	said := func(says string) []string {
		others := slices.DeleteFunc(misquoted([]file{page, {path: "README.zh-CN.md", text: says}}, nil), func(found string) bool {
			return !strings.Contains(found, "速度，`sync`")
		})
		return others
	}
	report(t, said("| 速度，`sync` | 0.25；CPU 4.00（目标 3） |"))
	wantOne(t, said("| 速度，`sync` | 0.25；CPU 4.00 |"), "（目标 3）")
	wantOne(t, said("| 速度，`sync` | 0.24；CPU 4.00（目标 3） |"), "0.25")
	check.Equal(t, "the date", cells([]file{page})["日期"], " 2026 年 5 月 3 日")
}
