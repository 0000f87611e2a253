// Keys of type snowflake in Go: pgx, lib/pq and database/sql, as Debian has them.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"reflect"

	"github.com/jackc/pgx/v4"
	_ "github.com/jackc/pgx/v4/stdlib"
	"github.com/lib/pq"
)

const id = int64(249722523258744845)

var ctx = context.Background()

func same(got, expected any, what string) {
	if !reflect.DeepEqual(got, expected) {
		fmt.Printf("%s: got %v, expected %v\n", what, got, expected)
		os.Exit(1)
	}
	fmt.Printf("  %s: %v\n", what, got)
}

func no(err error) {
	if err != nil {
		panic(err)
	}
}

// one returns what a query gives as a T, or the text of the error.
func one[T any](conn *pgx.Conn, query string, values ...any) any {
	var it T
	if err := conn.QueryRow(ctx, query, values...).Scan(&it); err != nil {
		return err.Error()
	}
	return it
}

const insert = " VALUES ($1, 'new') ON CONFLICT (id) DO UPDATE SET title = 'new' RETURNING id"

func main() {
	conn, err := pgx.Connect(ctx, "")
	no(err)
	for table, key := range map[string]string{"books": "snowflake", "plain": "bigint"} {
		_, err = conn.Exec(ctx, "CREATE TABLE "+table+" (id "+key+" PRIMARY KEY DEFAULT snowflake_nextval(), title text)")
		no(err)
	}
	same(one[int64](conn, "INSERT INTO plain"+insert, id), id, "pgx, bigint")
	_, err = conn.Exec(ctx, "INSERT INTO books VALUES ($1, 'one')", id)
	no(err)
	var oid uint32
	no(conn.QueryRow(ctx, "SELECT 'snowflake'::regtype::oid").Scan(&oid))
	where := "SELECT id FROM books WHERE id = $1"
	same(one[int64](conn, where, id), fmt.Sprintf("can't scan into dest[0]: unknown oid %d cannot be scanned into *int64", oid), "pgx, an int64")
	same(one[string](conn, where, id), "249722523258744845", "pgx, a string")
	same(one[int64](conn, "SELECT id::bigint FROM books WHERE id = ANY($1)", []int64{id}), id, "pgx, with a cast")
	no(conn.Close(ctx))

	conn, err = pgx.Connect(ctx, "")
	no(err)
	no(readAsInt64(ctx, conn))
	same(one[int64](conn, where, id), id, "pgx with the recipe, an int64")
	same(one[[]int64](conn, "SELECT ARRAY[id] FROM books WHERE id = ANY($1)", []int64{id}), []int64{id}, "pgx with the recipe, an array")
	same(one[int64](conn, "INSERT INTO books"+insert, int64(5)), int64(5), "pgx with the recipe, INSERT")
	copied, err := conn.CopyFrom(ctx, pgx.Identifier{"books"}, []string{"id"}, pgx.CopyFromRows([][]any{{int64(7)}}))
	no(err)
	same(copied, int64(1), "pgx with the recipe, COPY in binary form")
	no(conn.Close(ctx))

	address := fmt.Sprintf("host=127.0.0.1 port=%s user=%s dbname=%s sslmode=disable", os.Getenv("PGPORT"), os.Getenv("PGUSER"), os.Getenv("PGDATABASE"))
	for _, driver := range []string{"pgx", "postgres"} {
		db, err := sql.Open(driver, address)
		no(err)
		for _, table := range []string{"plain", "books"} {
			var got int64
			var list []int64
			what := "database/sql, " + driver + ", " + table
			no(db.QueryRow("INSERT INTO "+table+insert, id).Scan(&got))
			same(got, id, what+", INSERT")
			no(db.QueryRow("SELECT id, ARRAY[id] FROM "+table+" WHERE id = ANY($1)", pq.Array([]int64{id})).Scan(&got, pq.Array(&list)))
			same(list, []int64{got}, what)
			same(got, id, what)
		}
	}
}
