//go:build !race

package service

// raceDetector says that these tests were built with -race.
const raceDetector = false
