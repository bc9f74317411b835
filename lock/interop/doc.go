// Package interop holds the Go locks against the real thing: Redisson, current from Maven Central, in a JVM of
// its own, on the same Redis servers. Java and Go exclude each other, wake each other, count re-entries alike,
// renew, expire, refuse what is not theirs, and continue each other's fencing tokens.
//
// It has no code but its tests, under the build tag interop, because they need Java 17 and the jar that
// `make faults PART=interop` builds with Maven before it runs them. The Java side is one class behind a line protocol,
// src/main/java/Interop.java.
package interop
