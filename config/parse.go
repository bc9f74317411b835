package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxRate keeps a rate's arithmetic far from any overflow; no instance serves
// as many.
const maxRate = 1_000_000_000

func anyText(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("is blank")
	}
	return text, nil
}

func oneOf[T ~string](words ...T) func(string) (T, error) {
	last := len(words) - 1
	var most []string
	for _, word := range words[:last] {
		most = append(most, string(word))
	}
	return func(text string) (T, error) {
		if slices.Contains(words, T(text)) {
			return T(text), nil
		}
		return "", fmt.Errorf("%q is not %s or %s", text, strings.Join(most, ", "), words[last])
	}
}

func boolean(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "on", "true", "1":
		return true, nil
	case "off", "false", "0":
		return false, nil
	default:
		return false, fmt.Errorf("%q is not on or off (nor true, false, 1 or 0)", text)
	}
}

// durationFrom reads a duration of at least the one given, and tells people
// why it must not be shorter.
func durationFrom(least time.Duration, because string) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as 250ms, 30s or 15m", text)
		}
		if d < least {
			return 0, fmt.Errorf("%q is too short: at least %s, because %s", text, least, because)
		}
		return d, nil
	}
}

func wholeNumber(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not a whole number from %d to %d", text, least, most)
		}
		return n, nil
	}
}

func address(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("%q is not an address such as :8080 or 127.0.0.1:8080", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q does not end in a port from 0 to 65535", text)
	}
	return text, nil
}

// prefix reads a CIDR, or one address, which is the CIDR of itself.
func prefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.Prefix{}, fmt.Errorf("%q is not a CIDR such as 10.0.0.0/8", text)
}

func currency(text string) (string, error) {
	wrong := len(text) != 3
	for _, letter := range text {
		wrong = wrong || letter < 'A' || letter > 'Z'
	}
	if wrong {
		return "", fmt.Errorf("%q is not a currency code of ISO 4217 such as CNY or EUR", text)
	}
	return text, nil
}

func level(text string) (slog.Level, error) {
	switch text {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	default:
		return 0, fmt.Errorf("%q is not debug, info, warn or error", text)
	}
}

func rate(text string) (Rate, error) {
	if text == "0" {
		return Rate{}, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
	per, known := units[unit]
	events, err := strconv.ParseUint(number, 10, 64)
	if err != nil || !known || events > maxRate {
		return Rate{}, fmt.Errorf("%q is not a rate such as 20/s, 100/m or 1000/h, or 0 for none", text)
	}
	if events == 0 {
		return Rate{}, nil
	}
	return Rate{Events: int(events), Per: per}, nil
}

// list reads parts that are separated by commas, with or without spaces.
func list[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(text string) ([]T, error) {
		var values []T
		for part := range strings.SplitSeq(text, ",") {
			part = strings.TrimSpace(part)
			if part == "" {
				return nil, errors.New("has an empty entry in its list")
			}
			value, err := parse(part)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return values, nil
	}
}
