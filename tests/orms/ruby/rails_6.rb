# Active Record 6.1: the migration, many rows with one INSERT, schema.rb, and fixtures.
require "active_record"
require "active_record/fixtures"
require "stringio"
require "tmpdir"

ActiveRecord::Base.establish_connection(
  adapter: "postgresql", host: ENV["PGHOST"], port: ENV["PGPORT"], username: ENV["PGUSER"], database: ENV["PGDATABASE"]
)
ActiveRecord::Migration.verbose = false
CONNECTION = ActiveRecord::Base.connection

def same(got, expected, what)
  abort "#{what}: got #{got.inspect}, expected #{expected.inspect}" if got != expected
  puts "  #{what}: #{got.inspect}"
end

def inserts
  CONNECTION.execute("SELECT pg_stat_statements_reset()")
  yield
  CONNECTION.select_value("SELECT coalesce(sum(calls), 0)::integer FROM pg_stat_statements WHERE query LIKE 'INSERT%'")
end

class Book < ActiveRecord::Base
end

same(ActiveRecord.version.segments.first(2), [6, 1], "version")

# Fixtures, with the recipe and without it.
def fixtures
  Dir.mktmpdir do |folder|
    File.write("#{folder}/books.yml", "one:\n  title: One\ntwo:\n  title: Two\n")
    ActiveRecord::FixtureSet.reset_cache
    ActiveRecord::FixtureSet.create_fixtures(folder, ["books"])
  end
  "#{Book.count} rows"
rescue ActiveRecord::StatementInvalid => error
  error.message.lines.first.chomp
end
CONNECTION.create_table(:books, id: :bigint, default: -> { "snowflake_nextval()" }) { |t| t.text :title }
same(fixtures, 'PG::UndefinedTable: ERROR:  relation "public" does not exist', "fixtures without the recipe")
CONNECTION.drop_table(:books)
require "rails_recipe"
CreateBooks.new.migrate(:up)
Book.reset_column_information
same(fixtures, "2 rows", "fixtures")
CONNECTION.create_table(:counted)
CONNECTION.execute("INSERT INTO counted VALUES (7)")
CONNECTION.reset_pk_sequence!("counted")
same(CONNECTION.select_value("INSERT INTO counted DEFAULT VALUES RETURNING id"), 8, "a sequence is still set")

Book.delete_all
titles = Array.new(1000) { |n| { title: n.to_s } }
rows = nil
same(inserts { rows = Book.insert_all!(titles, returning: %w[id title]) }, 1, "insert_all!: INSERTs")
same(rows.to_h { |row| [row["title"], row["id"]] }, Book.pluck(:title, :id).to_h, "right IDs")
book = Book.create!(title: "one")
same(Book.find(book.id).title, "one", "a search by the ID")
same(CONNECTION.select_value("SELECT (snowflake_decode(#{book.id})).worker_id"), 7, "worker ID")
schema = StringIO.new
ActiveRecord::SchemaDumper.dump(CONNECTION, schema)
same(schema.string[/create_table "books".*/], 'create_table "books", id: :bigint, default: -> { "snowflake_nextval()" }, force: :cascade do |t|', "schema.rb")
CONNECTION.create_table(:copies) { |t| t.references :book }
same(CONNECTION.columns("copies").find { |column| column.name == "book_id" }.sql_type, "bigint", "references")
