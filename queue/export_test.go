package queue

// Recent is whether a server's version is new enough.
var Recent = recent
