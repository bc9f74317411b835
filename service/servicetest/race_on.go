//go:build race

package servicetest

const raceDetector = true
