package handler

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

const (
	consolePath = "/console"
	shopPath    = "/shop"
	docsPath    = basePath + "/docs"
)

// pages mounts the handler that serves people, if any, behind what stands in front of every route. The handler decides who
// may do what, and learns from the scheme of the URL that a proxy has taken TLS off.
func (a *api) pages(serve http.Handler, path string) {
	if serve == nil {
		return
	}
	for _, path := range []string{path, path + "/*path"} {
		a.paths = append(a.paths, path)
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			a.engine.Handle(method, path, func(c *gin.Context) {
				if callOf(c.Request.Context()).encrypted {
					c.Request.URL.Scheme = "https"
				}
				serve.ServeHTTP(c.Writer, c.Request)
			})
		}
	}
}

// welcome leads a browser that asks for / to the console, or to the API's documentation; a program finds nothing there.
func (a *api) welcome(c *gin.Context) bool {
	read := c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead
	front := docsPath
	if a.options.Console != nil {
		front = consolePath
	}
	if c.Request.URL.Path != "/" || !read || !slices.Contains(a.paths, front) {
		return false
	}
	c.Writer.Header().Add("Vary", "Accept")
	if !strings.Contains(strings.Join(c.Request.Header.Values("Accept"), ","), "text/html") {
		return false
	}
	c.Redirect(http.StatusSeeOther, front)
	c.Abort()
	return true
}
