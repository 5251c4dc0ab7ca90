package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

type schemas struct {
	provider    *tfprotov5.Schema
	resources   map[string]*tfprotov5.Schema
	dataSources map[string]*tfprotov5.Schema
}

// The part of the output of `tofu providers schema -json` that is used here.
type schemaJSON struct {
	Version int64     `json:"version"`
	Block   blockJSON `json:"block"`
}

type blockJSON struct {
	Attributes map[string]struct {
		Type                                     json.RawMessage `json:"type"`
		Required, Optional, Computed, Deprecated bool
	} `json:"attributes"`
	BlockTypes map[string]struct {
		NestingMode string    `json:"nesting_mode"`
		Block       blockJSON `json:"block"`
		MinItems    int64     `json:"min_items"`
		MaxItems    int64     `json:"max_items"`
	} `json:"block_types"`
}

func readSchemas(path, name string) (*schemas, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Providers map[string]struct {
			Provider    schemaJSON            `json:"provider"`
			Resources   map[string]schemaJSON `json:"resource_schemas"`
			DataSources map[string]schemaJSON `json:"data_source_schemas"`
		} `json:"provider_schemas"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for address, provider := range file.Providers {
		if !strings.HasSuffix(address, "/"+name) {
			continue
		}
		found := &schemas{resources: map[string]*tfprotov5.Schema{}, dataSources: map[string]*tfprotov5.Schema{}}
		if found.provider, err = schemaOf(provider.Provider); err != nil {
			return nil, fmt.Errorf("%s: provider: %w", path, err)
		}
		for kind, each := range map[*map[string]*tfprotov5.Schema]map[string]schemaJSON{
			&found.resources: provider.Resources, &found.dataSources: provider.DataSources,
		} {
			for name, schema := range each {
				if (*kind)[name], err = schemaOf(schema); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", path, name, err)
				}
			}
		}
		return found, nil
	}
	return nil, fmt.Errorf("%s: there is no provider %s", path, name)
}

func schemaOf(schema schemaJSON) (*tfprotov5.Schema, error) {
	block, err := blockOf(schema.Block)
	return &tfprotov5.Schema{Version: schema.Version, Block: block}, err
}

func blockOf(block blockJSON) (*tfprotov5.SchemaBlock, error) {
	result := &tfprotov5.SchemaBlock{}
	for _, name := range slices.Sorted(maps.Keys(block.Attributes)) {
		attribute := block.Attributes[name]
		//nolint:staticcheck // deprecated for writing schemas by hand; this is the notation that the JSON has
		kind, err := tftypes.ParseJSONType(attribute.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		result.Attributes = append(result.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: kind, Required: attribute.Required, Optional: attribute.Optional, Computed: attribute.Computed,
			Deprecated: attribute.Deprecated,
		})
	}
	modes := map[string]tfprotov5.SchemaNestedBlockNestingMode{
		"single": tfprotov5.SchemaNestedBlockNestingModeSingle, "list": tfprotov5.SchemaNestedBlockNestingModeList,
		"set": tfprotov5.SchemaNestedBlockNestingModeSet, "map": tfprotov5.SchemaNestedBlockNestingModeMap,
	}
	for _, name := range slices.Sorted(maps.Keys(block.BlockTypes)) {
		nested := block.BlockTypes[name]
		inner, err := blockOf(nested.Block)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		mode, known := modes[nested.NestingMode]
		if !known {
			return nil, fmt.Errorf("%s: nesting %q is not known here", name, nested.NestingMode)
		}
		result.BlockTypes = append(result.BlockTypes, &tfprotov5.SchemaNestedBlock{
			TypeName: name, Block: inner, Nesting: mode, MinItems: nested.MinItems, MaxItems: nested.MaxItems,
		})
	}
	return result, nil
}
