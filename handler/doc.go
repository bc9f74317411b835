// Package handler is the product on HTTP: routes, tokens, limits, problem
// documents and the OpenAPI document. It decides nothing about sales; it asks
// the services and translates.
//
// Every route is an entry of a table (route) from which its documentation and
// the checks in front of it are both made, so that neither can be forgotten.
// All routes but one are typed functions whose requests huma decodes and
// validates; the hot one, a purchase, is a plain Gin handler that is only
// documented in the same way (see benchmark_test.go for what that saves).
package handler
