// A stand-in for a Terraform provider: it has the schema of the real one, in the form that `tofu providers schema -json` prints,
// and reaches nothing. OpenTofu does the rest: it refuses attributes that are not in the schema, and ones that must be set and
// are not.
//
// The program has the name terraform-provider-NAME_vVERSION, as a provider mirror requires, with schema.json next to it. What
// it is asked to make exists at once, computed attributes are made up, and data sources say what answers.go has. Each thing that
// is made or ended is a line of JSON in the file that STANDIN_LOG names.
package main

import (
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(program), "terraform-provider-"), "_")
	schemas, err := readSchemas(filepath.Join(filepath.Dir(program), "schema.json"), name)
	if err != nil {
		return err
	}
	return tf5server.Serve("hashicorp/"+name, func() tfprotov5.ProviderServer { return &provider{name: name, schemas: schemas} })
}
