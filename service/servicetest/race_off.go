//go:build !race

package servicetest

const raceDetector = false
