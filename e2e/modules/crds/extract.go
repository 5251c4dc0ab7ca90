// Command extract takes CRDs out of the archive of a Go module. Go itself refuses to unpack a module that asks for a
// newer Go, though nothing of it is compiled here.
//
// Usage: extract ARCHIVE FOLDER PATH_IN_THE_MODULE...
package main

import (
	"archive/zip"
	"io"
	"log"
	"os"
	"path"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	archive, err := zip.OpenReader(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer archive.Close()
	for _, wanted := range os.Args[3:] {
		found := false
		for _, file := range archive.File {
			// Names in the archive begin with the module and its version.
			if strings.HasSuffix(path.Dir(file.Name), "/"+wanted) && path.Ext(file.Name) == ".yaml" ||
				strings.HasSuffix(file.Name, "/"+wanted) {
				found = true
				write(file, filepath.Join(os.Args[2], path.Base(file.Name)))
			}
		}
		if !found {
			log.Fatalf("%s: no %s in it", os.Args[1], wanted)
		}
	}
}

func write(file *zip.File, target string) {
	reader, err := file.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	text, err := io.ReadAll(reader)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(target, text, 0o644); err != nil {
		log.Fatal(err)
	}
}
