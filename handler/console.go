package handler

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// Where the pages for people are.
const (
	consolePath = "/console"
	shopPath    = "/shop"
	docsPath    = basePath + "/docs"
)

// consoleRoutes puts the console behind what stands in front of every route: the request's id, the bound on connections
// and the limit of the address. Who may do what there, the console decides.
func (a *api) consoleRoutes() {
	if a.options.Console == nil {
		return
	}
	a.pages(a.options.Console, consolePath, consolePath+"/*path")
	if a.options.Shop != nil {
		a.pages(a.options.Shop, shopPath, shopPath+"/*path")
	}
}

// pages mounts what serves people. It learns from the scheme of the URL that a proxy has taken TLS off.
func (a *api) pages(serve http.Handler, paths ...string) {
	a.paths = append(a.paths, paths...)
	for _, path := range paths {
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

// welcome leads a browser that asks for / to the console, or to the API's documentation where there is none. Programs
// hear there what they hear at every other path with nothing behind it.
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
