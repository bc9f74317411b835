package queue

// Recent is whether a server's version is new enough.
var Recent = recent

// BacklogOf is what Backlog makes of the two answers.
var BacklogOf = backlog
