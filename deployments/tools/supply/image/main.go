// Command image makes one image for several processors, a directory in OCI's layout that old Dockers read too: of OCI's
// configuration, from standard input, and of one tar file for each processor.
//
//	image DIRECTORY NAME:VERSION COMMIT PROCESSOR=TAR... <image.json
package main

import (
	"encoding/json"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	directory, name, commit := os.Args[1], os.Args[2], os.Args[3]
	_, version, _ := strings.Cut(name, ":")
	var file v1.ConfigFile
	no(json.NewDecoder(os.Stdin).Decode(&file))
	file.OS, file.Created.Time = "linux", time.Unix(need(strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)), 0).UTC()
	file.Config.Labels["org.opencontainers.image.version"], file.Config.Labels["org.opencontainers.image.revision"] = version, commit
	blob := func(of v1.Hash) string { return "blobs/sha256/" + of.Hex }
	var index v1.ImageIndex = empty.Index
	var saved tarball.Manifest // as docker save writes it
	for _, root := range os.Args[4:] {
		architecture, path, _ := strings.Cut(root, "=")
		file.Architecture = architecture
		image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		image = need(mutate.Append(need(mutate.ConfigFile(image, file.DeepCopy())), mutate.Addendum{
			Layer:   need(tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))),
			History: v1.History{Created: file.Created, CreatedBy: "make release"},
		}))
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: file.Platform()}})
		manifest := need(image.Manifest())
		saved = append(saved, tarball.Descriptor{
			Config: blob(manifest.Config.Digest), RepoTags: []string{name + "-" + architecture}, Layers: []string{blob(manifest.Layers[0].Digest)},
		})
	}
	at := need(layout.Write(directory, empty.Index))
	no(at.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": "docker.io/library/" + name, "org.opencontainers.image.ref.name": version,
	})))
	no(at.WriteFile("manifest.json", need(json.Marshal(saved)), 0o644))
}

func need[T any](value T, err error) T {
	no(err)
	return value
}

func no(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
