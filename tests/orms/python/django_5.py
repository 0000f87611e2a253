"""Django 5.2: new tables, bulk_create(), Django's own apps, and a table that exists."""

import django
import psycopg
from django.conf import settings

from server import DATABASE, HOST, PORT, USER, Counted, same, sql

settings.configure(
    INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages"],
    DEFAULT_AUTO_FIELD="django_recipe.SnowflakeAutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "HOST": HOST, "PORT": PORT,
                           "USER": USER, "NAME": DATABASE, "TEST": {"NAME": "django_test", "TEMPLATE": "django_template"}}},
)
django.setup()

from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.core.management.color import no_style
from django.db import DataError, connection, models
from django.db.migrations.exceptions import MigrationSchemaMissing
from django.db.migrations.operations import AlterField
from django.db.migrations.state import ModelState, ProjectState

import django_recipe as recipe


class Book(models.Model):
    title = models.TextField()

    class Meta:
        app_label = "shop"


class Copy(models.Model):
    book = models.ForeignKey(Book, on_delete=models.CASCADE)

    class Meta:
        app_label = "shop"


class Tag(models.Model):
    content_type = models.ForeignKey(ContentType, on_delete=models.CASCADE)
    object_id = models.PositiveBigIntegerField()
    book = GenericForeignKey()

    class Meta:
        app_label = "shop"


class NarrowTag(models.Model):
    content_type = models.ForeignKey(ContentType, on_delete=models.CASCADE)
    object_id = models.PositiveIntegerField()
    book = GenericForeignKey()

    class Meta:
        app_label = "shop"


def default_of(table):
    return sql("SELECT format_type(atttypid, NULL), attidentity::text, pg_get_expr(adbin, adrelid) FROM pg_attribute"
               " LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
               " WHERE attrelid = %s::regclass AND attname = 'id'", table)[0]


with connection.schema_editor() as editor:
    editor.create_model(Book)
    editor.create_model(Copy)
same(default_of("shop_book"), ("bigint", "", "snowflake_nextval()"), "a new table")
same(sql("SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'shop_copy'::regclass"
         " AND attname = 'book_id'"), [("bigint",)], "a foreign key")

with Counted() as server:
    book = Book(title="one")
    book.save()
    copy = Copy.objects.create(book=book)
same((server.calls("INSERT"), server.calls('SELECT "shop'), server.calls("UPDATE")), (2, 0, 0), "save(): INSERTs, SELECTs, UPDATEs")
with Counted() as server:
    books = Book.objects.bulk_create([Book(title=str(n)) for n in range(1000)])
rows = dict(sql("SELECT id, title FROM shop_book"))
same((server.calls("INSERT"), all(rows[b.pk] == b.title for b in books)), (1, True), "bulk_create(): INSERTs, right keys")

taken = [id for (id,) in sql("SELECT snowflake_nextval_batch(1000)")]
with Counted() as server:
    Book.objects.bulk_create([Book(pk=id, title=f"with a key: {id}") for id in taken])
same((server.calls("INSERT"), Book.objects.filter(pk__in=taken).count()), (1, 1000), "bulk_create() with keys: INSERTs, rows")

# Django's own apps.
call_command("migrate", verbosity=0)
tables = ["auth_user", "auth_group", "auth_permission", "django_admin_log", "django_content_type"]
same({default_of(table)[0] for table in tables}, {"integer"}, "tables of Django's own apps")
tables = ["auth_user_groups", "auth_user_user_permissions", "auth_group_permissions", "django_migrations"]
same({default_of(table) for table in tables}, {("bigint", "", "snowflake_nextval()")}, "tables whose field they do not name")
with connection.schema_editor() as editor:
    editor.create_model(Tag)
    editor.create_model(NarrowTag)
same(Tag.objects.create(book=book).object_id, book.pk, "a generic foreign key")
try:
    outcome = NarrowTag.objects.create(book=book).object_id
except DataError as error:
    outcome = str(error)
same(outcome, "integer out of range", "a generic foreign key of 32 bits")
LogEntry.objects.log_actions(User.objects.create(username="one").pk, [book], ADDITION, single_object=True)
same(LogEntry.objects.get().object_id, str(book.pk), "the admin's log")

for statement in connection.ops.sequence_reset_sql(no_style(), [Book]):
    sql(statement)
same(Book.objects.create(title="after").pk > books[-1].pk, True, "sqlsequencereset does nothing")

# A model that had a BigAutoField.
before = ProjectState()
before.add_model(ModelState("shop", "Old", [("id", models.BigAutoField(primary_key=True)), ("title", models.TextField())]))
after = before.clone()
change = AlterField("Old", "id", recipe.SnowflakeAutoField(primary_key=True))
change.state_forwards("shop", after)
with connection.schema_editor() as editor:
    editor.create_model(before.apps.get_model("shop", "Old"))
sql("INSERT INTO shop_old (title) VALUES ('before')")
with connection.schema_editor() as editor:
    change.database_forwards("shop", editor, before, after)
same(default_of("shop_old"), ("bigint", "d", None), "AlterField alone: the identity is still there")
sql("SELECT snowflake_set_default('shop_old')")
same(default_of("shop_old"), ("bigint", "", "snowflake_nextval()"), "after snowflake_set_default()")

# A new database, as for `manage.py test`, with the extension and without it.
for with_extension in (False, True):
    sql("CREATE DATABASE django_template")
    if with_extension:
        psycopg.connect(host=HOST, port=PORT, user=USER, dbname="django_template", autocommit=True).execute(
            "CREATE EXTENSION snowflake_id").connection.close()
    try:
        connection.creation.create_test_db(verbosity=0)
        outcome = "all tables are made"
    except MigrationSchemaMissing as error:
        outcome = "an error" if "function snowflake_nextval() does not exist" in str(error) else str(error)
    connection.creation.destroy_test_db(DATABASE, verbosity=0)
    sql("DROP DATABASE django_template")
    same(outcome, "all tables are made" if with_extension else "an error", f"a template with the extension: {with_extension}")
