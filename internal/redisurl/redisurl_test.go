package redisurl_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"seckill/internal/redisurl"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]redisurl.Target{
		"redis://a":                                {Hosts: []string{"a:6379"}},
		"redis://a?pool_size=7&timeout=500ms":      {Hosts: []string{"a:6379"}, Limits: redisurl.Limits{PoolSize: 7, Timeout: 500 * time.Millisecond}},
		"redis://:1/2":                             {Hosts: []string{"localhost:1"}, Database: 2},
		"redis://[::1]:1/":                         {Hosts: []string{"[::1]:1"}},
		"rediss://u:p%2Fw@a:1?skip_verify=on":      {Hosts: []string{"a:1"}, Username: "u", Password: "p/w", TLS: true, SkipVerify: true},
		"redis://:p@a:1, redis://:p@b:2":           {Hosts: []string{"a:1", "b:2"}, Cluster: true, Password: "p"},
		"redis+cluster://u:p@a":                    {Hosts: []string{"a:6379"}, Cluster: true, Username: "u", Password: "p"},
		"rediss+cluster://a:1,redis+cluster://b:2": {},
		"redis+sentinel://u:p@a,b:2,c/shop/3?sentinel_login=on": {
			Hosts: []string{"a:26379", "b:2", "c:26379"}, Primary: "shop", Username: "u", Password: "p", Database: 3,
			SentinelLogin: true,
		},
		"rediss+sentinel://a/shop": {Hosts: []string{"a:26379"}, Primary: "shop", TLS: true},
	} {
		got, err := redisurl.Parse(text)
		if want.Hosts == nil {
			if err == nil {
				t.Errorf("%s is %+v", text, got)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// What cannot be meant is refused with a sentence that names no part of a password.
func TestRefused(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		"":                                  "is not a URL",
		"a:1":                               "is not a URL",
		"redis://":                          "is not a URL",
		"http://a":                          "is not a URL",
		"redis+ring://a":                    "is not a URL",
		"redis://a:99999":                   "is not a URL",
		"redis://:hunter2/hunter2@a:1":      "written as %2F",
		"redis://:hunter2?hunter2@a:1":      "written as %2F",
		"redis://a/zero":                    "not a database number",
		"redis://a/-1":                      "not a database number",
		"redis://:hunter2#hunter2@a":        "written as %2F",
		"redis://a?hunter2=1":               "option",
		"redis://a?db=1":                    "option",
		"redis://a?pool_size=0":             "option",
		"redis://a?timeout=2":               "option",
		"redis://a?timeout=2s&timeout=3s":   "option",
		"redis://a?pool_size=1,redis://b":   "differ",
		"redis://a?skip_verify=on":          "option", // there is no TLS
		"rediss://a?skip_verify=perhaps":    "option",
		"redis://a?sentinel_login=on":       "option",
		"redis://a,b":                       "is not a URL",
		"redis+cluster://a,b":               "is not a URL",
		"redis+cluster://a/1":               "no other",
		"redis://a/1,redis://b/1":           "no other",
		"redis://:hunter2@a,redis://b":      "differ",
		"redis://a,rediss://b":              "differ",
		"redis+sentinel://a,b":              "which primary",
		"redis+sentinel://a,,b/shop":        "is not a URL",
		"redis://a,redis+sentinel://b/s":    "is a list",
		"redis+sentinel://a/shop,redis://b": "not a database number",
	} {
		_, err := redisurl.Parse(text)
		if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", text, err, why)
		}
	}
}
