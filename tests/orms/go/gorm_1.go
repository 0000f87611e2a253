// GORM 1: rows by the default, and what AutoMigrate makes with new_keys.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/jinzhu/gorm"
	_ "github.com/jinzhu/gorm/dialects/postgres"
)

type Book struct {
	ID    int64 `gorm:"primary_key"`
	Title string
}

type Copy struct {
	gorm.Model
	BookID int64
}

func same(got, expected interface{}, what string) {
	if got != expected {
		fmt.Printf("%s: got %v, expected %v\n", what, got, expected)
		os.Exit(1)
	}
	fmt.Printf("  %s: %v\n", what, got)
}

func main() {
	db, err := gorm.Open("postgres", fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", os.Getenv("PGHOST"), os.Getenv("PGPORT"), os.Getenv("PGUSER"), os.Getenv("PGDATABASE")))
	same(err, nil, "an error")
	db.DB().SetMaxOpenConns(1)
	ask := func(query string) (answer string) {
		if err := db.DB().QueryRow(query).Scan(&answer); err != nil {
			panic(err)
		}
		return
	}
	key := func(table string) string {
		return ask("SELECT format('%s %s', atttypid::regtype, pg_get_expr(adbin, adrelid)) FROM pg_attribute JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attname = 'id' AND attrelid = '" + table + "'::regclass")
	}
	status := "SELECT detail FROM snowflake_status() WHERE item = 'keys'"
	db.Exec("CREATE TABLE books (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), title text)")
	db.Exec("SET snowflake_id.new_keys = on")
	for _, what := range []string{"a table with the default", "a table that AutoMigrate makes"} {
		db.AutoMigrate(&Book{})
		same(key("books"), "bigint snowflake_nextval()", what)
		book := Book{Title: what}
		same(db.Create(&book).Error, nil, "an error")
		same(ask("SELECT (snowflake_decode(id)).worker_id || ' ' || id FROM books"), fmt.Sprintf("7 %d", book.ID), "its row")
		db.DropTable(&Book{})
	}
	db.AutoMigrate(&Copy{})
	same(key("copies"), "integer nextval('copies_id_seq'::regclass)", "gorm.Model")
	same(strings.HasSuffix(ask(status), ": public.copies.id."), true, "as status says")
}
