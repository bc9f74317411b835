package handler

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/swaggest/swgui/v5/static"
)

// docsPolicy lets the page load what this server has and nothing else. Swagger
// UI sets styles from its script and draws its icons as data.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed docs
var docsPage embed.FS

// asset is one file of the documentation page.
type asset struct {
	contentType string
	gzipped     bool
	data        []byte
}

// docsAssets loads the page: our own two files, and those of Swagger UI, which
// come compressed.
func docsAssets() (map[string]asset, error) {
	assets := map[string]asset{}
	load := func(files fs.FS, file, name, contentType string) error {
		data, err := fs.ReadFile(files, file)
		if err != nil {
			return fmt.Errorf("load the documentation page: %w", err)
		}
		assets[name] = asset{contentType: contentType, gzipped: strings.HasSuffix(file, ".gz"), data: data}
		return nil
	}
	const script = "text/javascript; charset=utf-8"
	for _, file := range []struct {
		files             fs.FS
		file, name, media string
	}{
		{docsPage, "docs/index.html", "", "text/html; charset=utf-8"},
		{docsPage, "docs/start.js", "start.js", script},
		{static.FS, "swagger-ui-bundle.js.gz", "swagger-ui-bundle.js", script},
		{static.FS, "swagger-ui.css.gz", "swagger-ui.css", "text/css; charset=utf-8"},
		{static.FS, "favicon-32x32.png", "favicon-32x32.png", "image/png"},
	} {
		if err := load(file.files, file.file, file.name, file.media); err != nil {
			return nil, err
		}
	}
	return assets, nil
}

// serveDocs serves the page and its files.
func (a *api) serveDocs(assets map[string]asset) gin.HandlerFunc {
	return func(c *gin.Context) {
		file, ok := assets[strings.TrimPrefix(c.Param("file"), "/")]
		if !ok {
			a.noRoute(c)
			return
		}
		header := c.Writer.Header()
		header.Set("Content-Security-Policy", docsPolicy)
		header.Set("Cache-Control", "max-age=3600") // an upgrade shows within the hour
		data := file.data
		if file.gzipped {
			header.Set("Vary", "Accept-Encoding")
			if strings.Contains(c.GetHeader("Accept-Encoding"), "gzip") {
				header.Set("Content-Encoding", "gzip")
			} else {
				plain, err := inflate(data)
				if err != nil {
					a.abort(c, err)
					return
				}
				data = plain
			}
		}
		c.Data(http.StatusOK, file.contentType, data)
	}
}
