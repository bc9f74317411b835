package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"seckill/model"
)

//go:embed static
var staticFiles embed.FS

// file is one of the scripts, styles and pictures that pages load.
type file struct {
	tag     string // the hash of its content
	content []byte
	packed  func() []byte // with gzip; made when it is asked for first
}

// files are by their path below static/.
type files map[string]file

func newFiles() (files, error) {
	found := files{}
	err := fs.WalkDir(staticFiles, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		found[strings.TrimPrefix(name, "static/")] = file{
			tag: hex.EncodeToString(sum[:12]), content: content, packed: sync.OnceValue(func() []byte { return pack(content) }),
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the console's files: %w", err)
	}
	return found, nil
}

// pack compresses. What is written into memory is always written.
func pack(content []byte) []byte {
	var packed bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, _ = writer.Write(content)
	_ = writer.Close()
	return packed.Bytes()
}

// url is where a file is. It names the content, so that browsers may keep it for good.
func (f files) url(name string) (string, error) {
	found, ok := f[name]
	if !ok {
		return "", fmt.Errorf("there is no file %s", name)
	}
	return Path + "/static/" + name + "?v=" + found.tag, nil
}

// serve sends a file. One that is asked for without its tag, or by that of another version, is asked for again each time.
func (f files) serve(w http.ResponseWriter, r *http.Request, _ *visit) error {
	name := r.PathValue("file")
	found, ok := f[name]
	if !ok {
		return model.NotFound("file")
	}
	header := w.Header()
	header.Set("ETag", `"`+found.tag+`"`)
	header.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == found.tag {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "text/plain; charset=utf-8"
	}
	header.Set("Content-Type", kind)
	header.Add("Vary", "Accept-Encoding")
	content := found.content
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		content = found.packed()
		header.Set("Content-Encoding", "gzip")
		header.Set("ETag", `"`+found.tag+`-gzip"`)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return nil
}
