//go:build !race

package servicetest

// raceDetector says that these tests were built with -race.
const raceDetector = false
