<?php
// Laravel's Eloquent 8: an unchanged migration and model, with new_keys on.
require 'Illuminate/Database/autoload.php';

use Illuminate\Database\Capsule\Manager;
use Illuminate\Database\Eloquent\Model;

class Book extends Model
{
    public $timestamps = false;
    protected $guarded = [];
}

function same($got, $expected, string $what): void
{
    if ($got !== $expected) {
        fwrite(STDERR, "$what: got " . var_export($got, true) . ', expected ' . var_export($expected, true) . "\n");
        exit(1);
    }
    echo "  $what: ", json_encode($got), "\n";
}

$manager = new Manager();
$manager->addConnection(['driver' => 'pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'username' => getenv('PGUSER'),
    'database' => getenv('PGDATABASE'), 'charset' => 'utf8', 'prefix' => '', 'schema' => 'public']);
$manager->setAsGlobal();
$manager->bootEloquent();
Manager::statement('SET snowflake_id.new_keys = on');
Manager::schema()->create('books', function ($table) {
    $table->id();
    $table->text('title');
});
Manager::schema()->create('copies', function ($table) {
    $table->id();
    $table->foreignId('book_id')->constrained('books');
});
$book = Book::create(['title' => 'One']);
same(Manager::selectOne('SELECT (snowflake_decode(?)).worker_id', [$book->id])->worker_id, 7, 'an ID of this server');
same(Book::find($book->id)->title, 'One', 'by which the row is found');
same(Manager::table('copies')->insertGetId(['book_id' => $book->id]) > $book->id, true, 'as insertGetId() returns it');
